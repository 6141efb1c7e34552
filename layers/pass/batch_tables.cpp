#include "layers/pass/batch_tables.h"

namespace quire {

Tensor BatchTables::find(const Key& key, const std::function<Tensor()>& make) {
  const auto found = tables_.find(key);
  return found != tables_.end() ? found->second : tables_.emplace(key, make()).first->second;
}

}  // namespace quire
