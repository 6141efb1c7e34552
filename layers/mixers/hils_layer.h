// A mixer with HiLS attention: every token and key head chooses chunks of the whole document before its window.
#pragma once

#include <memory>

#include "layers/carried/block_log.h"
#include "layers/mechanism/mechanism.h"
#include "layers/mixers/hils_heads.h"
#include "layers/mixers/key_blocks.h"
#include "layers/parts/basic.h"
#include "layers/position/position_tables.h"

namespace quire {

class HilsLayer final : public Part {
 public:
  HilsLayer(const Scope& scope, const Place& place, std::shared_ptr<PositionTables> tables);

  Variable operator()(const Forward& f, const PartInput& input) const override;
  bool adds_residual() const override { return true; }

 private:
  void declare_weights(const Scope& scope, const ModelConfig& model);
  HilsWeights weights() const;
  HilsChunks chunks_of(const Forward& f, const CarriedBlocks& carried) const;
  HilsRotation rotation(int64_t positions, const Tensor& like, int64_t step = 1) const;
  // Gives `in` what is carried, rotated by positions of this pass.
  void read_state(const Forward& f, const HilsChunks& chunks, const HilsTables& tables, HilsInput& in) const;
  // Returns the slots in the log of stored chunks, given by their places below `stored`, n for every row: i32 [R, n].
  Tensor stored_slots(const Forward& f, const std::vector<int32_t>& places, int64_t stored) const;
  // Returns keys and values of these chunks, [R, n, S, Hk, ..].
  std::pair<Tensor, Tensor> fetch(const Forward& f, const std::vector<int32_t>& places, int64_t stored,
                                  DType type) const;
  // Rotates x [R, n, .., ..], whose entry i of row r lies back[r, i] chunks before the one that positions count from.
  void rotate_back(const Tensor& x, const std::vector<int32_t>& back, int64_t farthest) const;
  void write_state(const Forward& f, const HilsChunks& chunks, const HilsTables& tables, const CarriedBlocks& carried,
                   const HilsHeads& heads, const HilsMix& mix) const;
  // NAME.chunks and NAME.nothing: the mean shares that chosen chunks, and the zero of softmax_one, have in the result;
  // and those of block_report.h.
  void report(const Forward& f, const HilsChunks& chunks, const HilsTables& tables, const CarriedBlocks& carried,
              const HilsMix& mix) const;
  KeyBlocks blocks_of(const HilsChunks& chunks, const HilsTables& tables) const;
  // Returns the n-th choice of all heads, i32 [R, T, H, 1]: slots of stored chunks, or numbers of own ones; -1 where it
  // is no such chunk.
  Tensor reads_of(const Forward& f, const HilsTables& tables, const Tensor& chosen, int64_t n, bool stored) const;

  std::string name_;
  uint32_t scope_;
  HilsConfig config_;
  HilsShape shape_;
  std::vector<double> frequencies_;  // empty without rotary positions
  bool interleaved_;
  double scale_;
  std::shared_ptr<PositionTables> position_tables_;
  HilsWeightsOf<Parameter> parameters_;
  Linear out_;
  BlockLog log_;
  LogId summaries_, biases_;  // of stored chunks: [H, D] rotated from the beginning of the chunk, [H]
};

}  // namespace quire
