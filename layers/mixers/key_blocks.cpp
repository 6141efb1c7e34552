#include "layers/mixers/key_blocks.h"

#include <algorithm>
#include <bit>

namespace quire {

namespace {

constexpr uint32_t kJumps = hash_scope("blocks.jump");
constexpr uint32_t kControlled = hash_scope("blocks.chosen_marks");

struct Tables {
  std::vector<int32_t> block, first, query_position, place;
  std::vector<uint8_t> marks, controlled;
};

// A random number for the landmark at a place of a row.
uint32_t random_bits(const Forward& f, uint32_t scope, int64_t row, int64_t t) {
  return philox(f.key, scope, static_cast<uint32_t>(f.batch.first_row + row), static_cast<uint32_t>(t), 0)[0];
}

Tables make_tables(const Forward& f, const BlockCut& cut, const std::vector<int64_t>& tails, int64_t before) {
  const Batch& batch = f.batch;
  const int64_t keys = before + batch.length;
  const auto cells = static_cast<size_t>(batch.rows * batch.length);
  const auto all_keys = static_cast<size_t>(batch.rows * keys);
  Tables to{std::vector<int32_t>(all_keys, -1), std::vector<int32_t>(cells, static_cast<int32_t>(keys)),
            std::vector<int32_t>(cells, 0),     std::vector<int32_t>(cells, 0),
            std::vector<uint8_t>(all_keys, 0),  std::vector<uint8_t>(all_keys, 0)};
  std::vector<int32_t> next(static_cast<size_t>(batch.rows), 0);  // the number of the next block of each row
  for (const Segment& segment : f.state.segments()) {
    int32_t& number = next[static_cast<size_t>(segment.row)];
    const int32_t first = number;
    const int64_t tail = segment.carried && !tails.empty() ? tails[static_cast<size_t>(segment.row)] : 0;
    for (int64_t n = 0; n < tail; ++n) {
      const auto at = static_cast<size_t>(segment.row * keys + before - tail + n);
      to.block[at] = number;
    }
    int64_t position = tail;
    bool open = tail > 0;
    for (int64_t t = segment.begin; t < segment.begin + segment.count; ++t) {
      int64_t jump = 1;
      const auto cell = static_cast<size_t>(batch.at(segment.row, t));
      const auto at = static_cast<size_t>(segment.row * keys + before + t);
      const int64_t place = batch.position[cell] % cut.period;
      to.block[at] = number;
      to.first[cell] = first;
      to.query_position[cell] = static_cast<int32_t>(position);
      to.place[cell] = static_cast<int32_t>(place);
      open = place != cut.period - 1;
      if (!open) ++number;
      if (!open && cut.landmarks) {
        const bool controlled =
            cut.controlled > 0 && random_bits(f, kControlled, segment.row, t) * 0x1p-32 < cut.controlled;
        to.marks[at] = controlled ? 2 : 1;
        to.controlled[at] = controlled ? 1 : 2;
        jump = 1 + static_cast<int64_t>(random_bits(f, kJumps, segment.row, t) % static_cast<uint64_t>(cut.jump));
      }
      position = next_position(position, jump);
    }
    if (open) ++number;
  }
  return to;
}

}  // namespace

KeyBlocks key_blocks(const Forward& f, const BlockCut& cut, const std::vector<int64_t>& tails) {
  KeyBlocks made;
  made.before = tails.empty() ? 0 : *std::max_element(tails.begin(), tails.end());
  const int64_t length = f.batch.length;
  made.positions = made.before + length + (length / cut.period + 1) * (cut.jump - 1);
  const Shape by_key{f.batch.rows, made.before + length};
  const Shape by_token{f.batch.rows, length};
  std::vector<int64_t> numbers{cut.period, cut.landmarks ? 1 : 0, cut.jump, std::bit_cast<int64_t>(cut.controlled)};
  numbers.insert(numbers.end(), tails.begin(), tails.end());
  const auto table_on = [&](Device device, const std::string& name, const Shape& shape, const auto part) {
    return f.table(name, numbers,
                   [&] { return Tensor::from(make_tables(f, cut, tails, made.before).*part, shape, device); });
  };
  const auto table = [&](const std::string& name, const Shape& shape, const auto part) {
    return table_on(f.state.device(), name, shape, part);
  };
  made.block = table("blocks.block", by_key, &Tables::block);
  made.first = table("blocks.first", by_token, &Tables::first);
  made.query_position = table("blocks.query_position", by_token, &Tables::query_position);
  made.place = table("blocks.place", by_token, &Tables::place);
  made.block_on_host = table_on(kCpu, "blocks.block_on_host", by_key, &Tables::block);
  made.first_on_host = table_on(kCpu, "blocks.first_on_host", by_token, &Tables::first);
  if (cut.landmarks) made.marks = table("blocks.marks", by_key, &Tables::marks);
  if (cut.controlled > 0) made.controlled = table("blocks.controlled", by_key, &Tables::controlled);
  return made;
}

}  // namespace quire
