#include "layers/pass/visibility.h"

#include <algorithm>
#include <cmath>

namespace quire {

std::vector<int32_t> first_visible(const Batch& batch, std::span<const Segment> segments,
                                   std::span<const int64_t> initial, std::optional<int64_t> window) {
  std::vector<int32_t> first(static_cast<size_t>(batch.rows * batch.length), static_cast<int32_t>(batch.length + 1));
  for (size_t s = 0; s < segments.size(); ++s) {
    const Segment& segment = segments[s];
    const int64_t low = segment.begin - initial[s];
    for (int64_t t = segment.begin; t < segment.begin + segment.count; ++t) {
      if (!batch.has_token(batch.at(segment.row, t))) continue;
      first[static_cast<size_t>(batch.at(segment.row, t))] =
          static_cast<int32_t>(window ? std::max(low, t - *window) : low);
    }
  }
  return first;
}

Tensor first_visible(const Forward& f, std::span<const int64_t> initial, std::optional<int64_t> window) {
  std::vector<int64_t> numbers(initial.begin(), initial.end());
  numbers.push_back(window.value_or(-1));
  return f.table("first_visible", numbers, [&] {
    return Tensor::from(first_visible(f.batch, f.state.segments(), initial, window), {f.batch.rows, f.batch.length},
                        f.state.device());
  });
}

std::optional<ops::AttentionBand> visible_band(const Batch& batch, std::span<const Segment> segments, int64_t carried,
                                               std::optional<int64_t> window, bool several_documents) {
  ops::AttentionBand band{.window = window,
                          .carried = window ? std::min(carried, *window) : carried,
                          .several_documents = several_documents};
  int64_t tokens = 0;
  for (const Segment& segment : segments) {
    if (segment.begin != 0 && !several_documents) return std::nullopt;
    tokens += segment.count;
  }
  band.padding = tokens < batch.rows * batch.length;
  return band;
}

Tensor visible_sequences(const Forward& f) {
  return f.table("visible_sequences", {}, [&] {
    std::vector<int32_t> numbers;
    for (const Segment& segment : f.state.segments()) {
      for (const int64_t number : {segment.row, segment.begin, segment.count}) {
        numbers.push_back(static_cast<int32_t>(number));
      }
    }
    const auto count = static_cast<int64_t>(f.state.segments().size());
    return Tensor::from(numbers, {count, ops::kSequenceNumbers}, f.state.device());
  });
}

Tensor token_mask(const Forward& f) {
  return f.table("token_mask", {}, [&] {
    std::vector<uint8_t> mask;
    for (const int32_t segment : f.batch.segment) mask.push_back(segment >= 0 ? 1 : 0);
    return Tensor::from(mask, {f.batch.rows * f.batch.length}, f.state.device());
  });
}

Tensor carried_mask(const Forward& f) {
  return f.table("carried_mask", {}, [&] {
    std::vector<uint8_t> mask(f.batch.segment.size(), 0);
    bool all = true;
    for (const Segment& segment : f.state.segments()) {
      all = all && segment.carried;
      if (segment.carried) std::fill_n(mask.begin() + f.batch.at(segment.row, segment.begin), segment.count, 1);
    }
    return all ? Tensor() : Tensor::from(mask, {f.batch.rows, f.batch.length}, f.state.device());
  });
}

int64_t t5_bucket(int64_t relative, int64_t buckets, int64_t max_distance, bool bidirectional) {
  int64_t offset = 0;
  int64_t n = std::max<int64_t>(-relative, 0);
  if (bidirectional) {
    buckets /= 2;
    if (relative > 0) offset = buckets;
    n = std::abs(relative);
  }
  const int64_t exact = buckets / 2;
  if (n < exact) return offset + n;
  const double fraction = std::log(static_cast<double>(n) / static_cast<double>(exact) + 0x1p-23) /
                          std::log(static_cast<double>(max_distance) / static_cast<double>(exact));
  const auto beyond = static_cast<int64_t>(std::floor(fraction * static_cast<double>(buckets - exact)));
  return offset + std::min(buckets - 1, exact + beyond);
}

}  // namespace quire
