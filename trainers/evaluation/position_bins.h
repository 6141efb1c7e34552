// Sums losses by the position of the target in its document: position 0 is the first token after BOS.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trainers/evaluation/exact_sum.h"

namespace quire {

struct PositionBin {
  int64_t begin = 0;
  int64_t end = 0;  // exclusive
  int64_t tokens = 0;
  int64_t bytes = 0;  // bytes that the tokens write; only where they write the original text
  ExactSum nll;       // nats
};

class PositionBins {
 public:
  // Bins [0, 1), [1, 2), [2, 4), [4, 8), ... or, with a width, [0, width), [width, 2 width), ... Throws Error(config)
  // when targets up to `longest` would need an unreadable number of bins.
  explicit PositionBins(int64_t longest, int64_t width = 0);

  void add(int64_t position, double nll, int64_t bytes);
  // Adds the targets of a bin from another object with the same width.
  void add(const PositionBin& other);
  void clear() { bins_.clear(); }
  // Returns the bins up to the last one with a token.
  const std::vector<PositionBin>& bins() const { return bins_; }

 private:
  size_t index(int64_t position) const;
  PositionBin& bin_of(int64_t position);

  int64_t width_;  // 0: powers of two
  std::vector<PositionBin> bins_;
};

// Parses the value of --bins: "log2" gives 0. Throws Error(config) for anything but that and a number of tokens.
int64_t parse_bin_width(const std::string& text);

}  // namespace quire
