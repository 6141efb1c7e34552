// Rotary positions of heads whose blocks can be put anywhere: given positions, and distances in whole blocks.
#pragma once

#include <bit>
#include <memory>

#include "autograd/functions/rotary.h"
#include "layers/config/attention_config.h"
#include "layers/position/position_tables.h"
#include "layers/position/rope_frequencies.h"

namespace quire {

class HeadRotation {
 public:
  // size: D. period: positions of a block.
  HeadRotation(Position position, const RopeConfig& rope, int64_t size, int64_t period,
               std::shared_ptr<PositionTables> tables)
      : on_(position == Position::rope),
        layout_(rope.layout),
        frequencies_(rope_frequencies(rope, rope.dims.value_or(size))),
        logit_factor_(on_ ? rope_logit_factor(rope) : 1),
        period_(period),
        tables_(std::move(tables)) {}

  bool is_on() const { return on_; }
  bool interleaved() const { return layout_ == RopeLayout::interleaved; }
  // Returns the factor of products of rotated queries and keys.
  double logit_factor() const { return logit_factor_; }

  // x [R, N, heads, D] rotated by positions i32 [R, N] from `begin` to end - 1; x itself without rotary positions.
  Variable by_positions(Tape& tape, const Variable& x, const Tensor& positions, int64_t end, int64_t begin = 0) const {
    if (!on_) return x;
    ops::RotaryInputs settings;
    settings.table = table(-begin, end, 1, x.value());
    settings.origin = -begin;
    settings.position = positions;
    settings.interleaved = interleaved();
    return rotary(tape, x, settings);
  }
  // x in place, of blocks that lie back[r, n] blocks, at most `farthest`, before the one that queries count from.
  void blocks_back(const Tensor& x, const Tensor& back, int64_t farthest) const {
    if (!on_) return;
    ops::RotaryInputs settings;
    settings.x = x;
    settings.table = turns(farthest, x);
    settings.position = back;
    settings.inverse = true;
    settings.interleaved = interleaved();
    ops::rotary(x, settings);
  }
  // Row n is the rotation by n blocks, for n up to `farthest` at least.
  Tensor turns(int64_t farthest, const Tensor& like) const {
    // Few sizes occur while documents grow.
    const auto entries = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(farthest + 1)));
    return table(0, entries, period_, like);
  }

 private:
  Tensor table(int64_t before, int64_t after, int64_t step, const Tensor& like) const {
    return tables_->rotary(before, after, frequencies_, wide_type(like.dtype()), like.device(), step);
  }

  bool on_;
  RopeLayout layout_;
  std::vector<double> frequencies_;
  double logit_factor_;
  int64_t period_;
  std::shared_ptr<PositionTables> tables_;
};

}  // namespace quire
