#include "layers/position_tables.h"

#include "kernels/position.h"

namespace quire {

namespace {

constexpr size_t kMostTables = 8;

}  // namespace

Tensor PositionTables::sinusoid(int64_t count, int64_t width, int64_t clamp, DType dtype, Device device) {
  const std::pair key{count, clamp};
  const auto found = tables_.find(key);
  if (found != tables_.end() && found->second.dim(1) == width && found->second.dtype() == dtype &&
      found->second.device() == device) {
    return found->second;
  }
  if (tables_.size() >= kMostTables) tables_.clear();
  const Tensor table = Tensor::empty({count, width}, dtype, device);
  ops::sinusoid(table, clamp);
  tables_[key] = table;
  return table;
}

}  // namespace quire
