#include "layers/position/token_shift.h"

#include "autograd/functions/rows.h"
#include "autograd/functions/views.h"

namespace quire {

ShiftRows shift_rows(const Batch& batch, const std::vector<Segment>& segments, const std::vector<uint8_t>& empty) {
  ShiftRows rows{.before = std::vector<int32_t>(static_cast<size_t>(batch.rows * batch.length), -1),
                 .last = std::vector<int32_t>(static_cast<size_t>(batch.rows), -1),
                 .written = std::vector<uint8_t>(static_cast<size_t>(batch.rows), 0)};
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    const auto row = static_cast<size_t>(segment.row);
    int32_t before = segment.carried && empty[s] == 0 ? 0 : -1;
    for (int64_t t = segment.begin; t < segment.begin + segment.count; ++t) {
      const auto cell = static_cast<size_t>(batch.at(segment.row, t));
      rows.before[cell] = before;
      if (!batch.inserted.empty() && batch.inserted[cell] != 0) continue;
      before = static_cast<int32_t>(1 + t);
      if (!segment.last) continue;
      rows.last[row] = before;
      rows.written[row] = 1;
    }
  }
  return rows;
}

ShiftedMixer::ShiftedMixer(const Scope& scope, int64_t features, std::unique_ptr<Part> mixer)
    : features_(features), before_(scope.state_register("shift", {features})), mixer_(std::move(mixer)) {}

Variable ShiftedMixer::shifted(const Forward& f, const Variable& x) const {
  Tape& tape = f.tape;
  const int64_t rows = x.dim(0);
  const std::vector<uint8_t> empty = f.state.is_empty(before_);
  const ShiftRows read = shift_rows(f.batch, f.state.segments(), empty);
  const auto uploaded = [&](const char* name, const std::vector<int32_t>& index) {
    return f.table(name, {empty.begin(), empty.end()}, [&] {
      return Tensor::from(index, {rows, static_cast<int64_t>(index.size()) / rows}, f.state.device());
    });
  };
  const Variable carried = Variable::constant(f.state.current(before_).reshape({rows, 1, features_}));
  const Variable table = concatenate(tape, std::vector{carried, slice(tape, x, 2, 0, features_)}, 1);
  if (f.write_state) {
    Tape constants(false);
    const Variable next =
        gather_rows(constants, Variable::constant(table.value()), uploaded("token_shift.last", read.last));
    f.state.put(before_, next.value().reshape({rows, features_}), read.written);
  }
  const Variable earlier = gather_rows(tape, table, uploaded("token_shift.before", read.before));
  if (features_ == x.dim(2)) return earlier;
  return concatenate(tape, std::vector{earlier, slice(tape, x, 2, features_, x.dim(2))}, 2);
}

Variable ShiftedMixer::operator()(const Forward& f, const PartInput& input) const {
  return (*mixer_)(f, {shifted(f, input.x), input.norm, input.residual});
}

}  // namespace quire
