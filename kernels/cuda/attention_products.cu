#include "kernels/cuda/attention_products.h"

#include "kernels/attention_slabs.h"
#include "kernels/cuda/attention_pairs.h"
#include "kernels/cuda/attention_softmax.h"
#include "kernels/cuda/columns.h"
#include "kernels/cuda/gemm.h"
#include "kernels/cuda_scratch.h"

namespace quire::cuda {

namespace {

using Piece = AttentionSlabs::Piece;
using Group = AttentionSlabs::Group;

const ops::GemmOptions kTransposedB{.transpose_b = true};

template <typename T>
T* data_or_none(const Tensor& tensor) {
  return tensor.defined() ? tensor.data<T>() : nullptr;
}

// One head of a call.
class HeadProducts {
 public:
  HeadProducts(const ops::AttentionInputs& in, const AttentionSizes& sizes, const AttentionSlabs& slabs,
               const AttentionProductScratch& scratch, int64_t head)
      : in_(in),
        s_(sizes),
        slabs_(slabs),
        scratch_(scratch),
        operands_(operands_of<bfloat16>(in, sizes)),
        head_(head),
        kv_head_(head / (sizes.heads / sizes.kv_heads)) {
    if (slabs.ring > 0) {
      gather_ring(scratch.ring_keys, in.cache_k, in.cache_head, scratch.lowest, kv_head_);
      gather_ring(scratch.ring_values, in.cache_v, in.cache_head, scratch.lowest, kv_head_);
    }
    if (!in.u.defined()) return;
    PairsOfPiece all{};
    all.in = operands_;
    all.head = static_cast<int>(head);
    all.matrices = static_cast<int>(s_.rows);
    all.by_rows = true;
    all.lines = static_cast<int>(s_.queries);
    add_to_queries(scratch.content.data<bfloat16>(), all, in.u.data<float>());
  }

  int64_t head() const { return head_; }
  int64_t kv_head() const { return kv_head_; }
  bool sees_ring(const Piece& piece) const { return piece.slab < slabs_.ringed; }
  int64_t lines(const Piece& piece) const { return slabs_.size_of(piece.slab, piece.slab + 1); }

  // Lines of slabs `begin` .. `end` - 1 of a tensor [R, T, heads, W], of one head: [matrices, lines, W].
  Tensor lines_of(const Tensor& tensor, int64_t head, const Piece& piece, int64_t begin, int64_t end) const {
    const int64_t heads = tensor.dim(2);
    const int64_t width = tensor.dim(3);
    const int64_t step = heads * width;
    return tensor.strided({piece.at_once(), slabs_.size_of(begin, end), width},
                          {(piece.slabs > 1 ? slabs_.length : s_.queries) * step, step, 1},
                          (piece.row * s_.queries + begin * slabs_.length) * step + head * width);
  }
  // Of the queries of a piece.
  Tensor queries_of(const Tensor& tensor, const Piece& piece) const {
    return lines_of(tensor, head_, piece, piece.slab, piece.slab + 1);
  }
  // q + u.
  Tensor content_of(const Piece& piece, int64_t begin, int64_t end) const {
    if (!scratch_.content.defined()) return lines_of(in_.q, head_, piece, begin, end);
    const Tensor one_head = scratch_.content.reshape({s_.rows, s_.queries, 1, s_.size});
    return lines_of(one_head, 0, piece, begin, end);
  }
  // Of the keys that a slab of queries sees.
  Tensor keys_of(const Tensor& tensor, const Piece& piece) const {
    return lines_of(tensor, kv_head_, piece, slabs_.first(piece.slab), slabs_.end(piece.slab));
  }
  Tensor ring_of(const Tensor& tensor, const Piece& piece) const {
    return tensor.slice(0, piece.row, piece.row + piece.at_once());
  }
  // Places of lines [matrices, lines, columns], and the lines of all matrices as one.
  Tensor pairs_of(const Tensor& scratch, const Piece& piece, int64_t columns, int64_t stride) const {
    const int64_t count = lines(piece);
    return scratch.strided({piece.at_once(), count, columns}, {count * stride, stride, 1}, 0);
  }
  Tensor flat(const Tensor& scratch, const Piece& piece, int64_t columns, int64_t stride) const {
    return scratch.strided({piece.at_once() * lines(piece), columns}, {stride, 1}, 0);
  }
  int64_t stride_of(const Piece& piece) const {
    return (slabs_.end(piece.slab) - slabs_.first(piece.slab)) * slabs_.length;
  }
  int64_t terms_stride(const Piece& piece) const { return ceil_div(slabs_.terms_of(piece.slab), 8) * 8; }
  Tensor table_of(const Tensor& r, const Piece& piece) const {
    const int64_t seen = slabs_.terms_of(piece.slab);
    return r.strided({seen, s_.size}, {s_.heads * s_.size, 1}, ((s_.entries - seen) * s_.heads + head_) * s_.size);
  }

  // Products of the queries of a piece with keys and tables.
  PairsOfPiece multiply(const Piece& piece) const {
    PairsOfPiece p{};
    p.in = operands_;
    p.head = static_cast<int>(head_);
    p.matrices = static_cast<int>(piece.at_once());
    p.row = static_cast<int>(piece.row);
    p.slab = static_cast<int>(piece.slab);
    p.by_rows = piece.slabs == 1;
    p.length = static_cast<int>(slabs_.length);
    p.lines = static_cast<int>(lines(piece));
    p.keys = static_cast<int>(slabs_.keys_of(piece.slab));
    p.first_key = static_cast<int>(slabs_.first(piece.slab) * slabs_.length);
    p.ring = sees_ring(piece) ? static_cast<int>(slabs_.ring) : 0;
    p.terms_seen = static_cast<int>(slabs_.terms_of(piece.slab));
    p.stride = static_cast<int>(stride_of(piece));
    p.terms_stride = static_cast<int>(terms_stride(piece));
    p.logits = scratch_.logits.data<float>();
    p.ring_logits = data_or_none<float>(scratch_.ring_logits);
    p.terms = data_or_none<float>(scratch_.terms);
    const Tensor content = content_of(piece, piece.slab, piece.slab + 1);
    if (p.ring > 0) {
      gemm(pairs_of(scratch_.ring_logits, piece, p.ring, p.ring), content, ring_of(scratch_.ring_keys, piece),
           kTransposedB);
    }
    gemm(pairs_of(scratch_.logits, piece, p.keys, p.stride), content, keys_of(in_.k, piece), kTransposedB);
    if (in_.r.defined()) {
      add_to_queries(scratch_.position.data<bfloat16>(), p, in_.v_bias.data<float>());
      gemm(flat(scratch_.terms, piece, p.terms_seen, p.terms_stride), flat(scratch_.position, piece, s_.size, s_.size),
           table_of(in_.r, piece), kTransposedB);
    }
    return p;
  }

 private:
  const ops::AttentionInputs& in_;
  const AttentionSizes& s_;
  const AttentionSlabs& slabs_;
  const AttentionProductScratch& scratch_;
  AttentionOperands<bfloat16> operands_;
  int64_t head_, kv_head_;
};

void find_lowest(const AttentionProductScratch& scratch, const ops::AttentionInputs& in, const AttentionSizes& s) {
  if (scratch.lowest.defined()) lowest_positions(scratch.lowest, operands_of<bfloat16>(in, s));
}

// Sums of terms over rows, times a factor.
struct Times {
  float factor;
  template <typename To, typename From>
  __device__ To term(From x) const {
    return static_cast<To>(factor * wide(x));
  }
};

// The backward pass of one call.
class Backward {
 public:
  Backward(const ops::AttentionGradients& gradients, const Tensor& dout, const Tensor& lse, const Tensor& delta,
           const ops::AttentionInputs& in, const AttentionSizes& sizes)
      : g_(gradients),
        dout_(dout),
        lse_(lse),
        delta_(delta),
        in_(in),
        s_(sizes),
        slabs_(sizes, in),
        scratch_(slabs_, sizes, in, true),
        more_(slabs_, scratch_, sizes, gradients, in) {}

  void run() const {
    find_lowest(scratch_, in_, s_);
    for (const Tensor* sums : {&g_.dbias, &g_.du, &g_.dv_bias}) {
      if (sums->defined()) sums->zero();
    }
    if (slabs_.ring == 0) {
      for (const Tensor* unseen : {&g_.dcache_k, &g_.dcache_v}) {
        if (unseen->defined()) unseen->zero();
      }
    }
    const int64_t of_group = s_.heads / s_.kv_heads;
    for (int64_t head = 0; head < s_.heads; ++head) {
      const HeadProducts products(in_, s_, slabs_, scratch_, head);
      if (head % of_group == 0) begin_key_head();
      if (more_.table.defined()) more_.table.zero();
      for (const Group& group : slabs_.groups()) {
        for (const Piece& piece : slabs_.pieces_of_queries(group)) add_queries(products, group, piece);
        for (const Piece& piece : slabs_.pieces_of_keys(group)) add_keys(products, group, piece);
        add_ring(products, group);
      }
      if (g_.dr.defined()) store_of_head(g_.dr, more_.table, head);
      if (head % of_group == of_group - 1) end_key_head(products.kv_head());
    }
  }

 private:
  void begin_key_head() const {
    for (const Tensor* sums : {&more_.keys, &more_.values, &more_.ring_key_sums, &more_.ring_value_sums}) {
      if (sums->defined()) sums->zero();
    }
  }
  void end_key_head(int64_t kv_head) const {
    if (more_.keys.defined()) store_of_head(g_.dk, more_.keys, kv_head);
    if (more_.values.defined()) store_of_head(g_.dv, more_.values, kv_head);
    if (more_.ring_key_sums.defined()) scatter_ring(g_.dcache_k, more_.ring_key_sums, in_.cache_head, kv_head);
    if (more_.ring_value_sums.defined()) scatter_ring(g_.dcache_v, more_.ring_value_sums, in_.cache_head, kv_head);
  }

  bool of_values() const { return g_.dv.defined() || g_.dcache_v.defined(); }

  // Pairs of queries of slabs `begin` .. `end` - 1 with keys of `first` .. `last` - 1, of a group.
  Tensor stored(const Tensor& pairs, const Group& group, const Piece& piece, int64_t begin, int64_t end, int64_t first,
                int64_t last) const {
    const int64_t of_row = slabs_.stored_pairs(group);
    const int64_t length = slabs_.length;
    return pairs.strided({piece.at_once(), slabs_.size_of(begin, end), slabs_.size_of(first, last)},
                         {piece.slabs > 1 ? length * (slabs_.width + 1) : of_row, slabs_.width, 1},
                         piece.row * of_row + (begin - group.begin) * length * slabs_.width +
                             (first - slabs_.first(group.begin)) * length);
  }
  // [rows, lines, ring] of the slab of a piece.
  Tensor stored_in_ring(const Tensor& pairs, const Group& group, const Piece& piece) const {
    const int64_t of_row = slabs_.ringed_queries(group) * slabs_.ring;
    return pairs.strided({piece.at_once(), slabs_.size_of(piece.slab, piece.slab + 1), slabs_.ring},
                         {of_row, slabs_.ring, 1},
                         piece.row * of_row + (piece.slab - group.begin) * slabs_.length * slabs_.ring);
  }
  StoredPairs places(const Tensor& pairs, const Tensor& ring_pairs, const Group& group, const Piece& piece,
                     bool with_ring) const {
    const Tensor segment =
        stored(pairs, group, piece, piece.slab, piece.slab + 1, slabs_.first(piece.slab), slabs_.end(piece.slab));
    StoredPairs to{segment.data<bfloat16>(), segment.stride(0), segment.stride(1), nullptr, 0};
    if (!with_ring) return to;
    const Tensor ring = stored_in_ring(ring_pairs, group, piece);
    to.ring = ring.data<bfloat16>();
    to.ring_matrix_step = ring.stride(0);
    return to;
  }

  // Gradients of logits, and of queries and tables, which are sums by them.
  void add_queries(const HeadProducts& products, const Group& group, const Piece& piece) const {
    const PairsOfPiece p = products.multiply(piece);
    const bool ringed = p.ring > 0;
    const Tensor dout = products.queries_of(dout_, piece);
    if (ringed) {
      gemm(products.pairs_of(more_.ring_products, piece, p.ring, p.ring), dout,
           products.ring_of(scratch_.ring_values, piece), kTransposedB);
    }
    gemm(products.pairs_of(more_.products, piece, p.keys, p.stride), dout, products.keys_of(in_.v, piece),
         kTransposedB);
    PairGradients to{};
    to.products = more_.products.data<float>();
    to.ring_products = data_or_none<float>(more_.ring_products);
    to.lse = lse_.data<float>();
    to.delta = delta_.data<float>();
    if (of_values()) to.weights = places(scratch_.weights, scratch_.ring_weights, group, piece, ringed);
    to.gradients = places(more_.gradients, more_.ring_gradients, group, piece, ringed);
    to.shifted = data_or_none<bfloat16>(more_.shifted);
    gradients_of_pairs(p, to);

    const int64_t lines = p.lines * piece.at_once();
    if (g_.dbias.defined()) {
      sum_columns(in_.q.device(), g_.dbias.data<float>() + products.head() * s_.entries + s_.entries - p.terms_seen,
                  static_cast<const bfloat16*>(to.shifted), lines, p.terms_seen, p.terms_stride, true,
                  Times{static_cast<float>(1 / in_.scale)});
    }
    const Tensor of_content = products.pairs_of(more_.of_content, piece, s_.size, s_.size);
    if (g_.dq.defined() || g_.du.defined()) {
      gemm(of_content,
           stored(more_.gradients, group, piece, piece.slab, piece.slab + 1, slabs_.first(piece.slab),
                  slabs_.end(piece.slab)),
           products.keys_of(in_.k, piece), {});
      if (ringed) {
        gemm(of_content, stored_in_ring(more_.ring_gradients, group, piece),
             products.ring_of(scratch_.ring_keys, piece), {.accumulate = true});
      }
    }
    add_column_sums(g_.du, products.head(), more_.of_content, lines);
    if (in_.r.defined()) {
      const Tensor shifted = products.flat(more_.shifted, piece, p.terms_seen, p.terms_stride);
      if (g_.dq.defined() || g_.dv_bias.defined()) {
        gemm(products.flat(more_.of_position, piece, s_.size, s_.size), shifted, products.table_of(in_.r, piece), {});
      }
      add_column_sums(g_.dv_bias, products.head(), more_.of_position, lines);
      if (g_.dr.defined()) {
        gemm(more_.table.slice(0, s_.entries - p.terms_seen, s_.entries), shifted,
             products.flat(scratch_.position, piece, s_.size, s_.size), {.transpose_a = true, .accumulate = true});
      }
    }
    if (g_.dq.defined()) {
      store_query_gradients(g_.dq.data<bfloat16>(), p, more_.of_content.data<float>(),
                            data_or_none<float>(more_.of_position));
    }
  }

  void add_column_sums(const Tensor& to, int64_t head, const Tensor& of_lines, int64_t lines) const {
    if (!to.defined()) return;
    sum_columns(in_.q.device(), to.data<float>() + head * s_.size, static_cast<const float*>(of_lines.data<float>()),
                lines, s_.size, s_.size, true);
  }

  // Gradients of slabs of keys of the segment.
  void add_keys(const HeadProducts& products, const Group& group, const Piece& piece) const {
    const auto add = [&](const Tensor& gradient, const Tensor& sums, const Tensor& pairs, const Tensor& lines) {
      if (!gradient.defined()) return;
      const bool summed = sums.defined();
      const Tensor whole = summed ? sums.reshape({s_.rows, s_.queries, 1, sums.dim(2)}) : gradient;
      const Tensor to = products.lines_of(whole, summed ? 0 : products.kv_head(), piece, piece.slab, piece.slab + 1);
      gemm(to, stored(pairs, group, piece, piece.begin, piece.end, piece.slab, piece.slab + 1), lines,
           {.transpose_a = true, .accumulate = summed});
    };
    add(g_.dk, more_.keys, more_.gradients, products.content_of(piece, piece.begin, piece.end));
    add(g_.dv, more_.values, scratch_.weights,
        products.lines_of(dout_, products.head(), piece, piece.begin, piece.end));
  }

  void add_ring(const HeadProducts& products, const Group& group) const {
    const int64_t queries = slabs_.ringed_queries(group);
    if (queries == 0) return;
    const Piece all{0, s_.rows, group.begin, 1, group.begin, std::min(group.end, slabs_.ringed)};
    const auto add = [&](const Tensor& sums, const Tensor& pairs, const Tensor& lines) {
      if (!sums.defined()) return;
      const Tensor of_group =
          pairs.strided({s_.rows, queries, slabs_.ring}, {queries * slabs_.ring, slabs_.ring, 1}, 0);
      gemm(sums, of_group, lines, {.transpose_a = true, .accumulate = true});
    };
    add(more_.ring_key_sums, more_.ring_gradients, products.content_of(all, all.begin, all.end));
    add(more_.ring_value_sums, scratch_.ring_weights,
        products.lines_of(dout_, products.head(), all, all.begin, all.end));
  }

  const ops::AttentionGradients& g_;
  const Tensor &dout_, &lse_, &delta_;
  const ops::AttentionInputs& in_;
  const AttentionSizes& s_;
  AttentionSlabs slabs_;
  AttentionProductScratch scratch_;
  AttentionProductBackwardScratch more_;
};

}  // namespace

void attention_by_products(const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in,
                           const AttentionSizes& s) {
  const AttentionSlabs slabs(s, in);
  const AttentionProductScratch scratch(slabs, s, in, false);
  find_lowest(scratch, in, s);
  for (int64_t head = 0; head < s.heads; ++head) {
    const HeadProducts products(in, s, slabs, scratch, head);
    for (const Group& group : slabs.groups()) {
      for (const Piece& piece : slabs.pieces_of_queries(group)) {
        const PairsOfPiece p = products.multiply(piece);
        const Tensor weights = products.pairs_of(scratch.weights, piece, p.keys, p.stride);
        const Tensor to = products.queries_of(out, piece);
        StoredPairs places{weights.data<bfloat16>(), weights.stride(0), weights.stride(1), nullptr, 0};
        if (p.ring > 0) {
          places.ring = scratch.ring_weights.data<bfloat16>();
          places.ring_matrix_step = static_cast<int64_t>(p.lines) * p.ring;
        }
        weights_of_pairs(p, places, lse.data<float>());
        if (p.ring > 0) {
          gemm(to, products.pairs_of(scratch.ring_weights, piece, p.ring, p.ring),
               products.ring_of(scratch.ring_values, piece), {});
        }
        gemm(to, weights, products.keys_of(in.v, piece), {.accumulate = p.ring > 0});
      }
    }
  }
}

void attention_backward_by_products(const ops::AttentionGradients& gradients, const Tensor& dout, const Tensor& out,
                                    const Tensor& lse, const ops::AttentionInputs& in, const AttentionSizes& s) {
  Tensor delta = gradients.delta;
  if (!delta.defined()) {
    delta = Tensor::empty(lse.shape(), DType::f32, in.q.device());
    launch_delta<bfloat16>(delta, dout, out);
  }
  Backward(gradients, dout, lse, delta, in, s).run();
}

}  // namespace quire::cuda
