#include "layers/pass/forward.h"

namespace quire {

Tensor Forward::selection(uint32_t scope, const std::function<Tensor()>& make) const {
  if (selections && again) {
    const Tensor chosen = selections->at(scope);
    selections->erase(scope);
    return chosen;
  }
  const Tensor chosen = make();
  if (selections) (*selections)[scope] = chosen;
  return chosen;
}

}  // namespace quire
