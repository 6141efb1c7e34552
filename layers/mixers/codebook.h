// The codewords of a layer: moving averages of the keys nearest to each (Transformer-VQ, section 3.4.1), saved as sums
// and counts and equal on all ranks. They learn once per optimizer step from the keys of all micro-batches and ranks.
#pragma once

#include <vector>

#include "layers/mixers/vq_config.h"
#include "layers/parameters/scope.h"
#include "layers/pass/learner.h"

namespace quire {

class Codebook final : public Learner {
 public:
  Codebook(const Scope& scope, const CodebookConfig& config, int64_t heads, int64_t codes, int64_t size);

  // [Hk, S, D] f32 or f64, for a model that computes in dtype.
  Tensor codewords(DType dtype) const;

  void begin_step(const LearnerStep& step) override;
  // keys [R, T, Hk, D], codes i32 [R, T, Hk], mask u8 [R * T].
  void count(const Batch& batch, const Tensor& keys, const Tensor& codes, const Tensor& mask);
  std::vector<Tensor> sums() const override;
  void update(const Tensor& control) override;

  // Reports, for the last step, the perplexity of the use of codewords, how many have an average count below 1, and the
  // extremes of that count. It reads from the device.
  void report(Telemetry& telemetry) const override;

 private:
  bool reseeds() const;

  std::string name_;
  CodebookConfig config_;
  uint32_t random_scope_;
  int64_t heads_, codes_, size_;
  ParameterStore::Buffer* sum_;    // [Hk, S, D]
  ParameterStore::Buffer* count_;  // [Hk, S]
  LearnerStep step_;
  Tensor step_sums_, step_counts_;  // of the keys of this step
  Tensor seeds_, present_;          // keys that may replace codewords, and whether there is one
};

}  // namespace quire
