// Losses by the position of the target in its document: position 0 is the first token after BOS.
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
  int64_t bytes = 0;  // that the tokens write; only where they write the original text
  ExactSum nll;       // nats
};

class PositionBins {
 public:
  // [0, 1), [1, 2), [2, 4), [4, 8), ... or, with a width, [0, width), [width, 2 width), ... Error(config) when targets
  // up to `longest` would need more bins than anyone reads.
  explicit PositionBins(int64_t longest, int64_t width = 0);

  void add(int64_t position, double nll, int64_t bytes);
  // The targets of a bin of others with the same width.
  void add(const PositionBin& other);
  void clear() { bins_.clear(); }
  // The bins up to the last one that holds a token.
  const std::vector<PositionBin>& bins() const { return bins_; }

 private:
  size_t index(int64_t position) const;
  PositionBin& bin_of(int64_t position);

  int64_t width_;  // 0: powers of two
  std::vector<PositionBin> bins_;
};

// The width that --bins means: "log2" is 0. Error(config) for anything but that and a number of tokens.
int64_t parse_bin_width(const std::string& text);

}  // namespace quire
