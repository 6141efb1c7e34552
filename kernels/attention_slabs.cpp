#include "kernels/attention_slabs.h"

#include <algorithm>

namespace quire {

namespace {

constexpr int64_t kMostQueries = 2048;
// The largest number of queries that are computed at once: more would not stay in a GPU's cache.
constexpr int64_t kMostLines = 8192;

int64_t rounded_up(int64_t a, int64_t to) {
  return (a + to - 1) / to * to;
}

Tensor line_of(int64_t count, DType type, const ops::AttentionInputs& in) {
  return Tensor::empty({count}, type, in.q.device());
}

}  // namespace

AttentionSlabs::AttentionSlabs(const AttentionSizes& s, const ops::AttentionInputs& in)
    : rows(s.rows), queries(s.queries), slots(s.slots), entries(s.entries), both_ways_(in.last_visible.defined()) {
  if (rows == 0 || queries == 0) return;
  // Without terms_end a table ends where visible keys do.
  int64_t block = 1;
  if (in.reach) {
    bounded_ = true;
    block = in.reach->block;
    before_ = in.reach->before;
  } else if (entries > 0 && !in.terms_end) {
    bounded_ = true;
    before_ = entries - 1;
  }
  const int64_t most = std::clamp(limits.lines / rows, limits.fewest_queries, kMostQueries);
  length = bounded_ ? std::clamp(rounded_up(before_, 8), limits.fewest_queries, most) : most;
  length = std::min(rounded_up(length, block), rounded_up(queries, 8));
  count = (queries + length - 1) / length;
  if (slots > 0) {
    ringed = bounded_ ? std::clamp((before_ + length - 1) / length, int64_t{0}, count) : count;
    if (ringed > 0) ring = rounded_up(slots, 8);
  }
  for (int64_t slab = 0; slab < count; ++slab) width = std::max(width, (end(slab) - first(slab)) * length);
}

int64_t AttentionSlabs::first(int64_t slab) const {
  return bounded_ ? std::max<int64_t>(0, slab * length - before_) / length : 0;
}

int64_t AttentionSlabs::terms_of(int64_t slab) const {
  const int64_t last = size_of(0, slab + 1) - 1;
  const int64_t farthest = slab < ringed ? last + slots : last - first(slab) * length;
  return std::min(entries, farthest + 1);
}

std::vector<AttentionSlabs::Group> AttentionSlabs::groups() const {
  std::vector<Group> found;
  if (count == 0) return found;
  const int64_t at_once = std::max<int64_t>(1, limits.pairs / (rows * length * width));
  for (int64_t begin = 0; begin < count; begin += at_once) found.push_back({begin, std::min(begin + at_once, count)});
  return found;
}

// Adds pieces for `alike` slabs beginning with that of `first`, as products of many rows or of many slabs.
void AttentionSlabs::add_pieces(std::vector<Piece>& pieces, const Piece& first, int64_t alike) const {
  const int64_t most = std::max<int64_t>(1, kMostLines / length);
  const auto add = [&](int64_t row, int64_t of_rows, int64_t ahead, int64_t slabs) {
    pieces.push_back({row, of_rows, first.slab + ahead, slabs, first.begin + ahead, first.end + ahead});
  };
  if (alike > rows) {
    for (int64_t row = 0; row < rows; ++row) {
      for (int64_t ahead = 0; ahead < alike; ahead += most) add(row, 1, ahead, std::min(most, alike - ahead));
    }
    return;
  }
  for (int64_t ahead = 0; ahead < alike; ++ahead) {
    for (int64_t row = 0; row < rows; row += most) add(row, std::min(most, rows - row), ahead, 1);
  }
}

std::vector<AttentionSlabs::Piece> AttentionSlabs::pieces_of_queries(const Group& group) const {
  std::vector<Piece> pieces;
  for (int64_t slab = group.begin; slab < group.end;) {
    int64_t alike = 1;
    const auto is_like = [&](int64_t other) {
      return other < group.end && !both_ways_ && slab >= ringed && size_of(other, other + 1) == length &&
             other - first(other) == slab - first(slab);
    };
    while (is_like(slab + alike)) ++alike;
    add_pieces(pieces, {0, rows, slab, 1, 0, 0}, alike);
    slab += alike;
  }
  return pieces;
}

std::vector<AttentionSlabs::Piece> AttentionSlabs::pieces_of_keys(const Group& group) const {
  std::vector<Piece> pieces;
  const auto begin_of = [&](int64_t slab) { return both_ways_ ? group.begin : std::max(slab, group.begin); };
  const auto end_of = [&](int64_t slab) {
    int64_t found = begin_of(slab);
    while (found < group.end && first(found) <= slab) ++found;
    return found;
  };
  const int64_t last = end(group.end - 1);
  for (int64_t slab = first(group.begin); slab < last;) {
    int64_t alike = 1;
    const int64_t begin = begin_of(slab);
    const int64_t behind = end_of(slab);
    const auto is_like = [&](int64_t other) {
      const int64_t ahead = other - slab;
      return other < last && !both_ways_ && begin_of(other) == begin + ahead && end_of(other) == behind + ahead &&
             size_of(other, other + 1) == length && size_of(begin + ahead, behind + ahead) == (behind - begin) * length;
    };
    while (is_like(slab + alike)) ++alike;
    add_pieces(pieces, {0, rows, slab, 1, begin, behind}, alike);
    slab += alike;
  }
  return pieces;
}

int64_t AttentionSlabs::most_lines() const {
  int64_t most = 0;
  for (const Group& group : groups()) {
    for (const Piece& piece : pieces_of_queries(group)) {
      most = std::max(most, piece.at_once() * size_of(piece.slab, piece.slab + 1));
    }
  }
  return most;
}

int64_t AttentionSlabs::most_terms() const {
  int64_t most = 0;
  for (int64_t slab = 0; slab < count; ++slab) most = std::max(most, terms_of(slab));
  return rounded_up(most, 8);
}

AttentionProductScratch::AttentionProductScratch(const AttentionSlabs& slabs, const AttentionSizes& s,
                                                 const ops::AttentionInputs& in, bool backward) {
  const Device device = in.q.device();
  const int64_t lines = slabs.most_lines();
  if (slabs.ring > 0) {
    lowest = Tensor::empty({s.rows}, DType::i32, device);
    ring_keys = Tensor::empty({s.rows, slabs.ring, s.size}, DType::bf16, device);
    ring_values = Tensor::empty({s.rows, slabs.ring, s.value_size}, DType::bf16, device);
    ring_logits = line_of(lines * slabs.ring, DType::f32, in);
  }
  if (in.u.defined()) content = Tensor::empty({s.rows, s.queries, s.size}, DType::bf16, device);
  logits = line_of(lines * slabs.width, DType::f32, in);
  if (in.r.defined()) {
    position = line_of(lines * s.size, DType::bf16, in);
    terms = line_of(lines * slabs.most_terms(), DType::f32, in);
  }
  int64_t pairs = lines * slabs.width;
  int64_t ring_pairs = lines * slabs.ring;
  if (backward) {
    pairs = 0;
    ring_pairs = 0;
    for (const AttentionSlabs::Group& group : slabs.groups()) {
      pairs = std::max(pairs, s.rows * slabs.stored_pairs(group));
      ring_pairs = std::max(ring_pairs, s.rows * slabs.ringed_queries(group) * slabs.ring);
    }
  }
  weights = line_of(pairs, DType::bf16, in);
  if (slabs.ring > 0) ring_weights = line_of(ring_pairs, DType::bf16, in);
}

AttentionProductBackwardScratch::AttentionProductBackwardScratch(const AttentionSlabs& slabs,
                                                                 const AttentionProductScratch& forward,
                                                                 const AttentionSizes& s,
                                                                 const ops::AttentionGradients& g,
                                                                 const ops::AttentionInputs& in) {
  const Device device = in.q.device();
  const int64_t lines = slabs.most_lines();
  products = Tensor::empty_like(forward.logits);
  gradients = Tensor::empty_like(forward.weights);
  of_content = line_of(lines * s.size, DType::f32, in);
  if (slabs.ring > 0) {
    ring_products = Tensor::empty_like(forward.ring_logits);
    ring_gradients = Tensor::empty_like(forward.ring_weights);
    if (g.dcache_k.defined()) ring_key_sums = Tensor::empty({s.rows, slabs.ring, s.size}, DType::f32, device);
    if (g.dcache_v.defined()) ring_value_sums = Tensor::empty({s.rows, slabs.ring, s.value_size}, DType::f32, device);
  }
  if (s.entries > 0) shifted = line_of(lines * slabs.most_terms(), DType::bf16, in);
  if (in.r.defined()) of_position = line_of(lines * s.size, DType::f32, in);
  if (g.dr.defined()) table = Tensor::empty({s.entries, s.size}, DType::f32, device);
  if (s.heads == s.kv_heads && slabs.groups().size() <= 1) return;
  if (g.dk.defined()) keys = Tensor::empty({s.rows, s.queries, s.size}, DType::f32, device);
  if (g.dv.defined()) values = Tensor::empty({s.rows, s.queries, s.value_size}, DType::f32, device);
}

}  // namespace quire
