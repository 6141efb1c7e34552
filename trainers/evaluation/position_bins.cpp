#include "trainers/evaluation/position_bins.h"

#include <bit>
#include <charconv>

#include "core/check.h"

namespace quire {

namespace {

constexpr int64_t kMaxBins = 100000;

}  // namespace

PositionBins::PositionBins(int64_t longest, int64_t width) : width_(width) {
  if (width_ > 0 && longest / width_ >= kMaxBins) {
    fail(ErrorKind::config,
         "--bins {}: the longest document has {} targets, which is more than {} bins; give {} or more", width_, longest,
         kMaxBins, longest / kMaxBins + 1);
  }
}

size_t PositionBins::index(int64_t position) const {
  QUIRE_CHECK(position >= 0, "position bins: position {}", position);
  if (width_ > 0) return static_cast<size_t>(position / width_);
  return static_cast<size_t>(std::bit_width(static_cast<uint64_t>(position)));
}

PositionBin& PositionBins::bin_of(int64_t position) {
  const size_t at = index(position);
  while (bins_.size() <= at) {
    const auto next = static_cast<int64_t>(bins_.size());
    PositionBin bin;
    bin.begin = width_ > 0 ? next * width_ : next == 0 ? 0 : int64_t{1} << (next - 1);
    bin.end = width_ > 0 ? bin.begin + width_ : int64_t{1} << next;
    bins_.push_back(bin);
  }
  return bins_[at];
}

void PositionBins::add(int64_t position, double nll, int64_t bytes) {
  PositionBin& bin = bin_of(position);
  bin.nll.add(nll);
  ++bin.tokens;
  bin.bytes += bytes;
}

void PositionBins::add(const PositionBin& other) {
  PositionBin& bin = bin_of(other.begin);
  bin.nll.add(other.nll);
  bin.tokens += other.tokens;
  bin.bytes += other.bytes;
}

int64_t parse_bin_width(const std::string& text) {
  if (text == "log2") return 0;
  int64_t width = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), width);
  if (error != std::errc{} || end != text.data() + text.size() || width < 1) {
    fail(ErrorKind::config, "--bins {}: expects log2 or the number of tokens in a bin", text);
  }
  return width;
}

}  // namespace quire
