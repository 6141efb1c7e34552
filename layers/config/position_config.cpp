#include "layers/config/position_config.h"

#include <algorithm>

namespace quire {

std::string PositionKinds::kind() const {
  return std::string(name_in_config(config_.kind));
}

void PositionKinds::choose(const std::string& kind) const {
  if (kind == this->kind()) return;
  const auto& names = EnumNames<Position>::value;
  const auto found = std::find_if(names.begin(), names.end(), [&](const auto& name) { return name.second == kind; });
  config_ = {.kind = found->first};
}

void PositionKinds::visit(const std::function<void(const ConfigStruct&)>& use) const {
  switch (config_.kind) {
    case Position::xl:
      return use(StructRef<XlConfig>(config_.xl));
    case Position::t5:
      return use(StructRef<T5Config>(config_.t5));
    case Position::rope:
      return use(StructRef<RopeConfig>(config_.rope));
    case Position::alibi:
    case Position::none:
      return;
  }
}

void PositionKinds::visit_default(const std::string& kind, const std::function<void(const ConfigStruct&)>& use) const {
  PositionConfig fresh;
  const PositionKinds kinds(fresh);
  kinds.choose(kind);
  kinds.visit(use);
}

}  // namespace quire
