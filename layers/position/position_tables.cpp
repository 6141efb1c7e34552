#include "layers/position/position_tables.h"

#include <cmath>
#include <vector>

#include "kernels/position.h"
#include "kernels/rotary.h"

namespace quire {

namespace {

constexpr size_t kMaxTables = 8;

}  // namespace

Tensor PositionTables::find(const Key& key, const Shape& shape, DType dtype, Device device,
                            const std::function<void(const Tensor&)>& fill) {
  const auto found = tables_.find(key);
  if (found != tables_.end() && found->second.shape() == shape && found->second.dtype() == dtype &&
      found->second.device() == device) {
    return found->second;
  }
  if (tables_.size() >= kMaxTables) tables_.clear();
  const Tensor table = Tensor::empty(shape, dtype, device);
  fill(table);
  tables_.insert_or_assign(key, table);
  return table;
}

Tensor PositionTables::sinusoid(int64_t count, int64_t width, int64_t clamp, double base, DType dtype, Device device) {
  return find({Kind::sinusoid, count, width, clamp, base}, {count, width}, dtype, device,
              [&](const Tensor& table) { ops::sinusoid(table, clamp, base); });
}

Tensor PositionTables::alibi(int64_t heads, int64_t count, DType dtype, Device device) {
  return find({Kind::alibi, heads, count, 0, 0}, {heads, count}, dtype, device, [&](const Tensor& table) {
    std::vector<double> values;
    for (int64_t h = 0; h < heads; ++h) {
      const double slope = std::exp2(-8.0 * static_cast<double>(h + 1) / static_cast<double>(heads));
      for (int64_t n = 0; n < count; ++n) values.push_back(-slope * static_cast<double>(count - 1 - n));
    }
    if (dtype == DType::f64) {
      table.upload(values.data(), table.numel());
    } else {
      const std::vector<float> narrow(values.begin(), values.end());
      table.upload(narrow.data(), table.numel());
    }
  });
}

Tensor PositionTables::rotary(int64_t before, int64_t after, const std::vector<double>& frequencies, DType dtype,
                              Device device, int64_t step) {
  const auto pairs = static_cast<int64_t>(frequencies.size());
  return find(
      {Kind::rotary, before, after, 0, 0, step, frequencies}, {before + after, 2, pairs}, dtype, device,
      [&](const Tensor& table) { ops::rotary_table(table, Tensor::from(frequencies, {pairs}, device), before, step); });
}

}  // namespace quire
