// What the progress line and the evaluations of a run say of its latest steps.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "data/corpus/corpus.h"
#include "trainers/step/step.h"

namespace quire {

// Bits per byte of the text for one nat per target: (targets / bytes) / ln 2 over the whole split. Nothing where the
// targets are not those of a text.
std::optional<double> bits_per_byte_of_nat(const Split& split, bool score_first_token);

class StepLine {
 public:
  explicit StepLine(std::optional<double> bits_per_byte_of_nat) : bits_(bits_per_byte_of_nat) {}

  // `seconds`: of the step alone, without evaluation and checkpoint.
  void add(const StepResult& result, double seconds);
  // "loss 1.789 (2.58 bits/byte), 8870 tokens/s": the last loss that was read, the speed of some ten steps.
  std::string text() const;
  // ", the last 100 training steps 1.250 (1.80 bits/byte)"; empty while no loss was read.
  std::string recent_losses() const;

 private:
  std::string in_bits(double loss, int digits) const;

  std::optional<double> bits_;
  std::deque<double> losses_;  // the last ones that were read
  double seconds_ = 0;         // smoothed, of a step
  double targets_ = 0;
};

}  // namespace quire
