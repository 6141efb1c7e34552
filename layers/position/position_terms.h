// Terms that attention adds to logits by distance: Transformer-XL, T5 or ALiBi.
#pragma once

#include <optional>

#include "autograd/functions/attention.h"
#include "layers/parts/basic.h"
#include "layers/position/position_tables.h"

namespace quire {

class PositionTerms {
 public:
  PositionTerms(const Scope& scope, const ModelConfig& model, const LayerConfig& layer,
                std::shared_ptr<PositionTables> tables);

  // Gives x its tables for distances below reach. factor multiplies the Transformer-XL terms u, v_bias and r: 1, or the
  // factor by which queries and keys were scaled. x.q must be defined.
  void add(const Forward& f, AttentionVariables& x, int64_t reach, double factor = 1) const;

 private:
  Position position_;
  XlConfig xl_;
  T5Config t5_;
  int64_t width_;
  int64_t heads_;
  int64_t head_size_;
  double dropout_;
  std::optional<Linear> relative_;  // Transformer-XL: W_r
  Parameter u_, v_;                 // Transformer-XL: global content and position biases, [H, D]
  Parameter bias_table_;            // T5: [H, buckets]
  std::shared_ptr<PositionTables> tables_;
};

}  // namespace quire
