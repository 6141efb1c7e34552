#include "kernels/block_sizes.h"
#include "kernels/cpu/common.h"

namespace quire::cpu {

namespace {

// The candidates of a row.
struct PlacedRow {
  const ops::BlockPlacing& in;
  int64_t row;

  static int64_t of(const Tensor& by_row, int64_t row) { return by_row.data<int32_t>()[row]; }
  int64_t end() const { return of(in.first, row) + of(in.length, row); }  // behind the newest
  bool is_stored(int64_t candidate) const { return candidate >= of(in.first, row) && candidate < in.stored; }
  int32_t slot(int64_t age) const {
    return static_cast<int32_t>(row * in.slots + ((of(in.head, row) - age) % in.slots + in.slots) % in.slots);
  }
};

void place_lists(const Tensor& slot, const Tensor& rotation, const Tensor& own, const ops::BlockPlacing& in) {
  const int64_t lists = in.index.dim(1) + 1, top_k = in.index.dim(2);
  for (int64_t i = 0; i < slot.numel(); ++i) {
    const PlacedRow row{in, i / (lists * top_k)};
    const int64_t list = i / top_k % lists;
    const int64_t age_given = in.age.data<int32_t>()[row.row * top_k + i % top_k];
    // A list of an earlier subsequence names only stored blocks.
    const int64_t candidate = list > 0        ? in.index.data<int32_t>()[i - (row.row + 1) * top_k]
                              : age_given > 0 ? row.end() - age_given
                                              : -1;
    QUIRE_CHECK(candidate < in.stored + lists - 1, "place_blocks: candidate {} of {}", candidate,
                in.stored + lists - 1);
    const int64_t age = row.end() - candidate;
    slot.data<int32_t>()[i] = row.is_stored(candidate) ? row.slot(age) : -1;
    own.data<int32_t>()[i] =
        candidate >= in.stored ? static_cast<int32_t>(row.row * (lists - 1) + candidate - in.stored) : -1;
    rotation.data<int32_t>()[i] = candidate >= 0 ? static_cast<int32_t>(age + PlacedRow::of(in.count, row.row)) : 0;
  }
}

void place_blocks(const Tensor& slot, const Tensor& rotation, const Tensor& own, const ops::BlockPlacing& in) {
  check_place_blocks(slot, rotation, own, in);
  if (in.age.defined()) return place_lists(slot, rotation, own, in);
  const int64_t top_k = in.index.dim(3);
  const int64_t queries = top_k == 0 ? 0 : in.index.numel() / top_k;
  for_rows(queries, top_k, [&](int64_t begin, int64_t end) {
    for (int64_t query = begin; query < end; ++query) {
      const PlacedRow row{in, query / (in.index.dim(1) * in.index.dim(2))};
      const int32_t* const from = in.index.data<int32_t>() + query * top_k;
      std::array<int64_t, ops::kMaxChosenBlocks> ages;
      int64_t count = 0;
      for (int64_t n = 0; n < top_k; ++n) {
        own.data<int32_t>()[query * top_k + n] = from[n] >= in.stored ? static_cast<int32_t>(from[n] - in.stored) : -1;
        if (row.is_stored(from[n])) ages[static_cast<size_t>(count++)] = row.end() - from[n];
      }
      std::sort(ages.begin(), ages.begin() + count, std::greater<>());
      for (int64_t n = 0; n < top_k; ++n) {
        const int64_t age = n < count ? ages[static_cast<size_t>(n)] : -1;
        int64_t back = age;
        if (n < count && in.places.defined()) {
          back = age <= count ? count - n : PlacedRow::of(in.places, row.row) - n;
        }
        slot.data<int32_t>()[query * top_k + n] = n < count ? row.slot(age) : -1;
        rotation.data<int32_t>()[query * top_k + n] = static_cast<int32_t>(back);
      }
      for (int64_t n = 0; n < top_k && in.own_blocks > 0; ++n) {
        if (from[n] < in.stored) continue;
        const int64_t number = row.row * in.own_blocks + from[n] - in.stored;
        slot.data<int32_t>()[query * top_k + count] = static_cast<int32_t>(-2 - number);
        rotation.data<int32_t>()[query * top_k + count++] = 0;
      }
    }
  });
}

}  // namespace

void bind_place_blocks() {
  ops::place_blocks.bind(DeviceKind::cpu, place_blocks);
}

}  // namespace quire::cpu
