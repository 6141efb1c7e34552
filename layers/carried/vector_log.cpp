#include "layers/carried/vector_log.h"

#include "kernels/knn.h"

namespace quire {

VectorLog declare_vectors(const Scope& scope, LogGroupId group, const std::string& name, const Shape& entry,
                          std::optional<DType> dtype) {
  VectorLog made;
  made.log = scope.state_log(group, name, entry, dtype);
  if (!dtype || !ops::has_scale(*dtype)) return made;
  const Shape of_vectors(std::span(entry.begin(), entry.end() - 1));
  made.scale = scope.state_log(group, name + ".scale", of_vectors, DType::bf16);
  return made;
}

void store_vectors(const StateView& state, const VectorLog& to, const Tensor& entries,
                   const std::function<void(LogId, const Tensor&)>& write) {
  if (!to.scale.defined()) {
    write(to.log, entries);
    return;
  }
  const Shape& shape = entries.shape();
  const Tensor small = Tensor::empty(shape, state.stored_ring(to.log).dtype(), entries.device());
  const Tensor scale = Tensor::empty(Shape(std::span(shape.begin(), shape.end() - 1)), DType::bf16, entries.device());
  ops::quantize_vectors(small, scale, entries);
  write(to.log, small);
  write(to.scale, scale);
}

}  // namespace quire
