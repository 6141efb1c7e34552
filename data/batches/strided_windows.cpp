#include "data/batches/strided_windows.h"

#include <algorithm>
#include <numeric>

#include "core/check.h"

namespace quire {

StridedWindows::StridedWindows(std::span<const int64_t> offsets, const BatchOptions& options, int64_t stride)
    : options_(options), stride_(stride), first_window_{0} {
  const int64_t length = options.data.subsequence;
  QUIRE_CHECK(stride >= 1 && stride <= length && !options.insertion.any() && !options.endless && !options.shuffle,
              "strided windows: stride {} of windows of {}", stride, length);
  if (options.only) {
    documents_ = *options.only;
  } else {
    documents_.resize(offsets.size() - 1);
    std::iota(documents_.begin(), documents_.end(), 0);
  }
  for (const int64_t document : documents_) {
    const auto at = static_cast<size_t>(document);
    const int64_t targets = offsets[at + 1] - offsets[at] + 1;
    const int64_t first = options.count_last ? std::max<int64_t>(targets - *options.count_last, 0) : 0;
    const int64_t left_out = first < length ? 0 : (first - length) / stride + 1;
    const int64_t windows = targets <= length ? 1 : (targets - length + stride - 1) / stride + 1;
    targets_.push_back(targets);
    left_out_.push_back(left_out);
    first_window_.push_back(first_window_.back() + windows - left_out);
  }
}

Cursor StridedWindows::start() const {
  Cursor cursor;
  cursor.rows.resize(static_cast<size_t>(options_.data.rows));
  return cursor;
}

void StridedWindows::check(const Cursor& cursor) const {
  const bool fits = cursor.next_place >= 0 && cursor.next_place <= windows() &&
                    static_cast<int64_t>(cursor.rows.size()) == options_.data.rows;
  if (!fits) fail(ErrorKind::checkpoint, "the data cursor does not fit these windows");
}

std::vector<Piece> StridedWindows::step(Cursor& cursor) const {
  std::vector<Piece> pieces;
  for (int64_t row = 0; row < options_.data.rows && !done(cursor); ++row) {
    const int64_t window = cursor.next_place++;
    const auto after = std::upper_bound(first_window_.begin(), first_window_.end(), window);
    const auto place = static_cast<size_t>(after - first_window_.begin()) - 1;
    const int64_t number = window - first_window_[place] + left_out_[place];
    const int64_t begin = number * stride_;
    pieces.push_back({.row = row,
                      .count = std::min(options_.data.subsequence, targets_[place] - begin),
                      .document = documents_[place],
                      .offset = begin,
                      .context = number == 0 ? 0 : options_.data.subsequence - stride_});
  }
  return pieces;
}

}  // namespace quire
