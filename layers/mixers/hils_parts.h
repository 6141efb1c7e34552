// The steps of hils_mix as functions of a class, which holds the inputs of a pass of a layer.
#pragma once

#include "layers/mixers/hils_pass.h"

namespace quire {

// Names the chosen chunks that a pass reads, for listed_attention.
struct HilsReads {
  Tensor blocks;                // i32 [R, T, Hk, K]: numbers of blocks
  std::vector<int32_t> places;  // [R, n]: those of the stored blocks; -1: none
};

class HilsParts {
 public:
  HilsParts(Tape& tape, const HilsConfig& config, const HilsShape& shape, const HilsTables& tables, const HilsInput& in)
      : tape_(tape), config_(config), s_(shape), t_(tables), in_(in), count_(tables.stored + tables.own) {}

  // Reads the window of keys and values [R, before + T, Hk, ..].
  void read_window(HilsMix& mix, const Variable& keys, const Variable& values) const;
  // Returns keys or values of the pass behind the carried ones, [R, before + T, Hk, ..].
  Variable behind(const Tensor& before, const Variable& x) const;
  // Returns the regular lines of own chunks, [R, Hk, G, S - 1, ..], of lines [R, before + T, Hk, ..].
  Variable own_lines(const Variable& lines) const;
  // Returns the summaries of own chunks; keys [R, before + T, Hk, D], regular [R, Hk, G, S - 1, D].
  HilsSummaries summaries(const Variable& keys, const Variable& regular) const;
  // Return scores of the N stored and the G own chunks, [R, H, T, N + G]; keys [R, Hk, N + G, S - 1, D].
  Variable summary_scores(const HilsSummaries& own) const;
  Variable exact_scores(const Variable& keys) const;
  // Chooses for each key head: i32 [R, Hk, T, K], in ascending order.
  Tensor best(const Tensor& scores, const Tensor& window_sum) const;
  // Returns the chosen places as numbers of blocks, which count all stored chunks with `all`, else the chosen ones.
  HilsReads reads(const Tensor& chosen, bool all) const;
  std::vector<int32_t> all_stored() const;
  // Returns keys and values [R n, S, Hk, ..] of the stored chunks at places [R, n].
  std::pair<Tensor, Tensor> stored(const std::vector<int32_t>& places) const;
  // Returns the keys of stored and own chunks by key head, [R, Hk, N + G, S - 1, D].
  Variable all_keys(const Tensor& stored, const Variable& own) const;
  Variable read_chunks(const HilsMix& mix, const HilsReads& reads, const std::pair<Tensor, Tensor>& stored,
                       const Variable& keys, const Variable& values) const;
  // Gathers the scores of chosen places, and computes the weights of these, the window and the zero of softmax_one.
  void weigh(HilsMix& mix, const Variable& scores) const;
  // Returns the output of the window times its weight.
  Variable of_window(const HilsMix& mix) const;

 private:
  Variable wide(const Variable& x) const;
  Variable heads_first(const Variable& x) const { return permute(tape_, x, {0, 2, 1, 3}); }
  // x [R, G, H, D] -> [R, Hk, G, H / Hk, D], and x [R, Hk, G, H / Hk, n] -> [R, G, H, n].
  Variable by_key_head(const Variable& x) const;
  Variable by_chunk(const Variable& x) const;
  Variable landmark_keys(const Variable& keys) const;  // [R, G, Hk, D]
  // x [R, G, Hk, D] for all heads: [R, G, H, D].
  Variable repeated(const Variable& x) const;
  Variable landmark_queries() const;  // [R, G, H, D]
  Tensor for_all_heads(const Tensor& index) const;

  Tape& tape_;
  const HilsConfig& config_;
  const HilsShape& s_;
  const HilsTables& t_;
  const HilsInput& in_;
  int64_t count_;
};

}  // namespace quire
