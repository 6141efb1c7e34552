#include "layers/mixers/hils_chunks.h"

#include <algorithm>

#include "layers/carried/carried_blocks.h"

namespace quire {

HilsChunks::HilsChunks(const HilsConfig& config, int64_t rows, int64_t length, std::vector<HilsSpan> spans)
    : config_(config), rows_(rows), length_(length), spans_(std::move(spans)) {
  std::vector<int64_t> own(static_cast<size_t>(rows), 0);
  for (const HilsSpan& span : spans_) {
    stored_ = std::max(stored_, span.stored);
    near_ = std::max(near_, near_of(span));
    max_tail_ = std::max(max_tail_, span.tail);
    own_ = std::max(own_, own[static_cast<size_t>(span.row)] += count_own(span));
  }
  stored_ = std::min(with_places_to_spare(stored_), config.capacity());
}

int64_t HilsChunks::near_of(const HilsSpan& span) const {
  return std::min(span.stored, (span.slot - config_.window_begin(span.slot)) / config_.chunk);
}

int64_t HilsChunks::count_own(const HilsSpan& span) const {
  return std::max<int64_t>(0, (span.slot + span.count) / config_.chunk - first_own(span));
}

std::vector<int32_t> HilsChunks::near_chunks() const {
  std::vector<int32_t> numbers(static_cast<size_t>(rows_ * near_), -1);
  for (const HilsSpan& span : spans_) {
    for (int64_t n = 1; n <= near_of(span); ++n) {
      numbers[static_cast<size_t>((span.row + 1) * near_ - n)] = static_cast<int32_t>(stored_ - n);
    }
  }
  return numbers;
}

template <typename Body>
void HilsChunks::for_each(const Body& body) const {
  int64_t row = -1, first = 0, own = 0;
  for (const HilsSpan& span : spans_) {
    if (span.row != row) row = span.row, first = 0, own = 0;
    body(span, first, own);
    // Numbers of a row's chunks grow from document to document.
    first += near_of(span) + (span.slot % config_.chunk + span.count) / config_.chunk + 1;
    own += count_own(span);
  }
}

HilsChunks::ByKey HilsChunks::by_key() const {
  const int64_t chunk = config_.chunk, tail_at = near_ * chunk, before = this->before(), keys = before + length_;
  ByKey to{std::vector<int32_t>(static_cast<size_t>(rows_ * keys), -1),
           std::vector<uint8_t>(static_cast<size_t>(rows_ * keys), 0)};
  for_each([&](const HilsSpan& span, int64_t first, int64_t) {
    const auto put = [&](int64_t key, int64_t number, int64_t slot) {
      const auto at = static_cast<size_t>(span.row * keys + key);
      to.block[at] = static_cast<int32_t>(number);
      to.marks[at] = slot % chunk == chunk - 1 ? 1 : 0;
    };
    const int64_t near = near_of(span), begun = first + near;
    for (int64_t n = 0; n < near * chunk; ++n) put(tail_at - near * chunk + n, first + n / chunk, n);
    for (int64_t n = 1; n <= span.tail; ++n) put(before - n, begun, span.slot - n);
    for (int64_t n = 0; n < span.count; ++n) {
      put(before + span.begin + n, begun + (span.slot % chunk + n) / chunk, span.slot + n);
    }
  });
  return to;
}

HilsChunks::ByCell HilsChunks::by_cell() const {
  const int64_t chunk = config_.chunk;
  const auto cells = static_cast<size_t>(rows_ * length_);
  // Padding sees nothing.
  const auto beyond = static_cast<int32_t>(before() + chunk + length_ + 1);
  ByCell to{std::vector<int32_t>(cells, beyond), std::vector<int32_t>(cells, 0), std::vector<int32_t>(cells, 0)};
  for_each([&](const HilsSpan& span, int64_t first, int64_t) {
    const int64_t begun = span.slot / chunk, near = near_of(span);
    for (int64_t n = 0; n < span.count; ++n) {
      const int64_t slot = span.slot + n;
      const auto cell = static_cast<size_t>(span.row * length_ + span.begin + n);
      const int64_t begin = std::max(config_.window_begin(slot) / chunk, begun - near);
      to.first[cell] = static_cast<int32_t>(first + near + begin - begun);
      to.position[cell] = static_cast<int32_t>(slot - slot / chunk - begun * config_.regular());
      to.place[cell] = static_cast<int32_t>(slot % chunk);
    }
  });
  return to;
}

HilsChunks::ByChunk HilsChunks::by_chunk() const {
  const int64_t chunk = config_.chunk, before = this->before();
  const auto places = static_cast<size_t>(rows_ * own_);
  ByChunk to{std::vector<int32_t>(places, -1), std::vector<int32_t>(places, -1), std::vector<int32_t>(places, 0),
             std::vector<int32_t>(places, 0)};
  for_each([&](const HilsSpan& span, int64_t, int64_t own) {
    for (int64_t n = 0; n < count_own(span); ++n) {
      const int64_t number = first_own(span) + n, at = span.row * own_ + own + n;
      const int64_t cell = span.begin + number * chunk - span.slot;  // below 0 for carried keys
      to.begin[static_cast<size_t>(at)] = static_cast<int32_t>(before + cell);
      const int64_t position = (number - span.slot / chunk) * config_.regular();
      to.landmarks[static_cast<size_t>(at)] = static_cast<int32_t>(cell + chunk - 1);
      to.chunk_position[static_cast<size_t>(at)] = static_cast<int32_t>(position);
      to.mark_position[static_cast<size_t>(at)] = static_cast<int32_t>(position + config_.regular());
    }
  });
  return to;
}

std::vector<int32_t> HilsChunks::regular(int64_t key_heads) const {
  const std::vector<int32_t> begin = by_chunk().begin;
  const int64_t keys = before() + length_;
  std::vector<int32_t> lines;
  for (int64_t i = 0; i < rows_ * key_heads * own_ * config_.regular(); ++i) {
    const int64_t n = i % config_.regular(), chunk = i / config_.regular() % own_;
    const int64_t head = i / config_.regular() / own_ % key_heads, row = i / config_.regular() / own_ / key_heads;
    const int64_t first = begin[static_cast<size_t>(row * own_ + chunk)];
    lines.push_back(first < 0 ? -1 : static_cast<int32_t>((row * keys + first + n) * key_heads + head));
  }
  return lines;
}

std::vector<int32_t> HilsChunks::spans_of_keys() const {
  const std::vector<int32_t> begin = by_chunk().begin;
  std::vector<int32_t> spans;
  for (size_t i = 0; i < begin.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / own_;
    const bool there = begin[i] >= 0;
    spans.push_back(there ? static_cast<int32_t>(row * (before() + length_) + begin[i]) : 0);
    spans.push_back(there ? static_cast<int32_t>(config_.regular()) : 0);
  }
  return spans;
}

std::vector<int32_t> HilsChunks::marked(int64_t key_heads) const {
  const std::vector<int32_t> begin = by_chunk().begin;
  const int64_t keys = before() + length_;
  std::vector<int32_t> lines;
  for (int64_t i = 0; i < rows_ * own_ * key_heads; ++i) {
    const int64_t first = begin[static_cast<size_t>(i / key_heads)], row = i / key_heads / own_;
    lines.push_back(
        first < 0 ? -1 : static_cast<int32_t>((row * keys + first + config_.regular()) * key_heads + i % key_heads));
  }
  return lines;
}

std::vector<uint8_t> HilsChunks::candidates() const {
  const int64_t chunk = config_.chunk, width = stored_ + own_;
  std::vector<uint8_t> mask(static_cast<size_t>(rows_ * length_ * width), 0);
  for_each([&](const HilsSpan& span, int64_t, int64_t own) {
    const int64_t begun = span.slot / chunk, first = first_own(span), count = count_own(span);
    for (int64_t n = 0; n < span.count; ++n) {
      const int64_t slot = span.slot + n, end = config_.window_begin(slot) / chunk;
      const int64_t oldest = std::max<int64_t>(0, slot / chunk - config_.capacity());
      uint8_t* const of_cell = mask.data() + (span.row * length_ + span.begin + n) * width;
      for (int64_t c = std::max(oldest, begun - span.stored); c < std::min(end, begun); ++c) {
        of_cell[stored_ - (begun - c)] = 1;
      }
      for (int64_t c = std::max(oldest, first); c < std::min(end, first + count); ++c) {
        of_cell[stored_ + own + c - first] = 1;
      }
    }
  });
  return mask;
}

std::vector<uint8_t> HilsChunks::terms(int64_t chosen) const {
  const int64_t width = stored_ + own_;
  const std::vector<uint8_t> mask = config_.chooses() ? candidates() : std::vector<uint8_t>();
  std::vector<uint8_t> counts(static_cast<size_t>(rows_ * length_ * (chosen + 2)), 0);
  for (const HilsSpan& span : spans_) {
    for (int64_t n = 0; n < span.count; ++n) {
      const int64_t cell = span.row * length_ + span.begin + n;
      uint8_t* const of_cell = counts.data() + cell * (chosen + 2);
      const int64_t number =
          chosen == 0 ? 0 : std::count(mask.begin() + cell * width, mask.begin() + (cell + 1) * width, 1);
      std::fill_n(of_cell, std::min(number, chosen), 1);
      of_cell[chosen] = 1;
      of_cell[chosen + 1] = config_.softmax_one ? 1 : 0;
    }
  }
  return counts;
}

HilsTables HilsChunks::tables(Device device, int64_t key_heads, const TableMaker& table) const {
  HilsTables t;
  t.rows = rows_, t.length = length_;
  t.stored = stored_, t.near = near_;
  t.before = before();
  t.own = own_;
  t.positions = max_tail_ + config_.chunk + length_;
  t.chosen = config_.chooses() ? config_.top_k : 0;
  const auto made = [&](const char* name, const Shape& shape, const auto& values) {
    const DType type = dtype_of<typename std::decay_t<decltype(values())>::value_type>();
    if (device == kMeta) return Tensor::empty(shape, type, device);  // a plan reads no values
    return table(name, [&] { return Tensor::from(values(), shape, device); });
  };
  const Shape by_key{rows_, t.before + length_}, by_cell{rows_, length_}, by_chunk{rows_, own_};
  t.block = made("block", by_key, [&] { return this->by_key().block; });
  t.marks = made("marks", by_key, [&] { return this->by_key().marks; });
  t.first = made("first", by_cell, [&] { return this->by_cell().first; });
  t.position = made("position", by_cell, [&] { return this->by_cell().position; });
  t.place = made("place", by_cell, [&] { return this->by_cell().place; });
  t.terms = made("terms", {rows_, 1, length_, t.chosen + 2}, [&] { return terms(t.chosen); });
  if (!config_.chooses()) return t;
  t.regular = made("regular", {rows_, key_heads, own_, config_.regular()}, [&] { return regular(key_heads); });
  t.marked = made("marked", {rows_, own_, key_heads}, [&] { return marked(key_heads); });
  t.spans = made("spans", {rows_ * own_, 2}, [&] { return spans_of_keys(); });
  t.landmarks = made("landmarks", by_chunk, [&] { return this->by_chunk().landmarks; });
  t.mark_position = made("mark_position", by_chunk, [&] { return this->by_chunk().mark_position; });
  t.chunk_position = made("chunk_position", by_chunk, [&] { return this->by_chunk().chunk_position; });
  t.candidates = made("candidates", {rows_, 1, length_, stored_ + own_}, [&] { return candidates(); });
  return t;
}

}  // namespace quire
