#include "layers/config/rope_scaling_config.h"

#include <algorithm>

namespace quire {

std::string RopeScalingKinds::kind() const {
  return std::string(name_in_config(config_.kind));
}

void RopeScalingKinds::choose(const std::string& kind) const {
  if (kind == this->kind()) return;
  const auto& names = EnumNames<RopeScaling>::value;
  const auto found = std::find_if(names.begin(), names.end(), [&](const auto& name) { return name.second == kind; });
  config_ = {.kind = found->first};
}

void RopeScalingKinds::visit(const std::function<void(const ConfigStruct&)>& use) const {
  switch (config_.kind) {
    case RopeScaling::none:
      return;
    case RopeScaling::linear:
      return use(StructRef<LinearScaling>(config_.linear));
    case RopeScaling::dynamic:
      return use(StructRef<DynamicScaling>(config_.dynamic));
    case RopeScaling::llama3:
      return use(StructRef<Llama3Scaling>(config_.llama3));
    case RopeScaling::yarn:
      return use(StructRef<YarnScaling>(config_.yarn));
    case RopeScaling::longrope:
      return use(StructRef<LongropeScaling>(config_.longrope));
  }
}

void RopeScalingKinds::visit_default(const std::string& kind,
                                     const std::function<void(const ConfigStruct&)>& use) const {
  RopeScalingConfig fresh;
  const RopeScalingKinds kinds(fresh);
  kinds.choose(kind);
  kinds.visit(use);
}

}  // namespace quire
