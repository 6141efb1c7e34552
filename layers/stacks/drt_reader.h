// The feed-forward sub-layer of an upper layer, which reads chunks before it goes on (grouped cross-attention).
#pragma once

#include <optional>

#include "layers/parts/basic.h"
#include "layers/stacks/drt_config.h"

namespace quire {

// Names the values that the stack leaves for its upper layers. Chunks of the subsequence have keys and values [R N, S,
// Hk, D].
struct ChunkValues {
  ValueId keys, values, list;
};
// Names the values that each group leaves (layers/stacks/drt_retriever.h).
struct ListValues {
  ValueId own, weight;
  ValueId slot, keys, values, key_scale, value_scale;  // of stored chunks
};

class ChunkReader final : public Part {
 public:
  // `stack` is the scope path of the stack.
  ChunkReader(const Scope& scope, const ModelConfig& model, const DrtConfig& config, const std::string& stack,
              int64_t group);

  Variable operator()(const Forward& f, const PartInput& input) const override;

 private:
  // Returns what the heads read, [R, T, E]; undefined where there is nothing to read.
  Variable read(const Forward& f, const Variable& x) const;

  ReaderResidual residual_;
  bool softmax_one_;
  int64_t heads_, head_size_;
  ChunkValues chunks_;
  ListValues lists_;
  std::optional<Norm> norm_;
  Linear query_;
  std::optional<Linear> out_;
  Mlp mlp_;
};

}  // namespace quire
