// Fields that name a kind, with the options of that kind.
#include "core/config/config.h"

namespace quire {

ConfigKinds::~ConfigKinds() = default;

void ConfigVisitor::on_kinds(std::string_view name, const ConfigKinds& choice, KindOptions where,
                             const FieldInfo& info) {
  on_field(name, KindField(choice), info);
  choice.visit([&](const ConfigStruct& options) {
    if (where == KindOptions::in_section) return on_section(choice.kind(), options, "");
    options.fields(*this);
  });
}

std::string KindField::type() const {
  std::string text;
  for (const ConfigChoice& choice : kinds_.choices()) text += (text.empty() ? "" : " | ") + choice.name;
  return text;
}

void KindField::read(const ConfigNode& node, const ValueContext& context) const {
  const std::vector<ConfigChoice> choices = kinds_.choices();
  std::vector<std::string_view> names;
  for (const ConfigChoice& choice : choices) names.push_back(choice.name);
  kinds_.choose(choices[read_choice(node, context, names)].name);
}

ConfigNode KindField::write() const {
  return ConfigNode::scalar(kinds_.kind());
}

}  // namespace quire
