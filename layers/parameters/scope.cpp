#include "layers/parameters/scope.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

ValueId Scope::leaves_value(const std::string& name) const {
  declared_->values.push_back(join(name));
  const ValueId id{static_cast<int>(declared_->values.size()) - 1};
  declared_->value_uses.push_back({id, true});
  return id;
}

ValueId Scope::reads_value(const std::string& path) const {
  const auto found = std::find(declared_->values.begin(), declared_->values.end(), path);
  QUIRE_CHECK(found != declared_->values.end(), "{} reads the value {}, which no layer before it leaves", path_, path);
  const ValueId id{static_cast<int>(found - declared_->values.begin())};
  declared_->value_uses.push_back({id, false});
  return id;
}

}  // namespace quire
