// The text about the latest steps in the progress line and in evaluations.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>

#include "data/corpus/corpus.h"
#include "trainers/step/step.h"

namespace quire {

// Returns the bits per byte of the text for one nat per target: (targets / bytes) / ln 2 over the whole split. Returns
// nothing where the targets are not those of a text.
std::optional<double> bits_per_byte_of_nat(const Split& split, bool score_first_token);

class StepLine {
 public:
  explicit StepLine(std::optional<double> bits_per_byte_of_nat) : bits_(bits_per_byte_of_nat) {}

  // `seconds`: the time of the step, without evaluation and checkpoint.
  void add(const StepResult& result, double seconds);
  // Returns "loss 1.789 (2.58 bits/byte), 8870 tokens/s": the last loss that was read, and the speed over about ten
  // steps.
  std::string text() const;
  // Returns ", the last 100 training steps 1.250 (1.80 bits/byte)"; empty while no loss was read.
  std::string recent_losses() const;

 private:
  std::string in_bits(double loss, int digits) const;

  std::optional<double> bits_;
  std::deque<double> losses_;  // the latest losses that were read
  double seconds_ = 0;         // smoothed time of a step
  double targets_ = 0;
};

}  // namespace quire
