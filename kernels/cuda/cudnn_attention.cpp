#include "kernels/cuda/cudnn_attention.h"

#include <map>
#include <mutex>

#include "core/check.h"
#include "kernels/cuda/attention_gather.h"
#include "kernels/cuda/cudnn_plans.h"

namespace quire::cuda {

namespace {

// The plans of all shapes so far. They stay, since building them takes seconds.
class PlanTable {
 public:
  CudnnPlans& of(const CudnnShape& shape) {
    const std::lock_guard lock(mutex_);
    std::unique_ptr<CudnnPlans>& plans = plans_[shape];
    if (!plans) plans = make_cudnn_plans(shape);
    return *plans;
  }

 private:
  std::mutex mutex_;
  std::map<CudnnShape, std::unique_ptr<CudnnPlans>> plans_;
};

// Left as it is at the end of the process: the driver may have gone before.
PlanTable& plans() {
  static PlanTable& table = *new PlanTable;
  return table;
}

void check_covered(const ops::AttentionInputs& in) {
  QUIRE_CHECK(
      !in.bias.defined() && !in.r.defined() && !in.last_visible.defined() && in.attend_self && in.dropout == 0,
      "attention: cuDNN's kernels take no position terms, last_visible or dropout, and every query sees itself");
  const int64_t slots = in.cache_k.defined() ? in.cache_k.dim(1) : 0;
  QUIRE_CHECK(in.band.carried <= slots && (in.band.carried > 0 || slots == 0),
              "attention: {} keys of a ring of {} are seen; cuDNN's kernels want some of them, or no ring",
              in.band.carried, slots);
}

// Keys and values in one line; without a ring they are those of the segment.
struct Lines {
  Tensor k, v;
  Tensor query_lengths, key_lengths;  // with a ring

  Lines(const AttentionSizes& s, const ops::AttentionInputs& in) : k(in.k), v(in.v) {
    const int64_t carried = in.band.carried;
    if (carried == 0) return;
    query_lengths = Tensor::empty({s.rows}, DType::i32, in.q.device());
    key_lengths = Tensor::empty({s.rows}, DType::i32, in.q.device());
    line_lengths(query_lengths, key_lengths, in.first_visible, carried);
    k = Tensor::empty({s.rows, carried + s.queries, s.kv_heads, s.size}, in.k.dtype(), in.q.device());
    v = Tensor::empty({s.rows, carried + s.queries, s.kv_heads, s.value_size}, in.v.dtype(), in.q.device());
    gather_line(k, in.k, in.cache_k, in.cache_head, key_lengths);
    gather_line(v, in.v, in.cache_v, in.cache_head, key_lengths);
  }
};

const void* raw_or_null(const Tensor& tensor) {
  return tensor.defined() ? tensor.raw() : nullptr;
}

Tensor workspace_of(int64_t bytes, Device device) {
  return bytes == 0 ? Tensor() : Tensor::empty({bytes}, DType::u8, device);
}

// A tensor that a pass must write, wanted or not.
Tensor given_or_new(const Tensor& given, const Tensor& like) {
  return given.defined() ? given : Tensor::empty_like(like);
}

std::string why_no_plans(const AttentionProblem& problem) {
  try {
    plans().of(shape_of(problem));
    return "";
  } catch (const Error& error) {
    return error.what();
  }
}

}  // namespace

void attention_in_cudnn(const AttentionSizes& s, const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in) {
  check_covered(in);
  CudnnPlans& plan = plans().of(shape_of(problem_of(in)));
  const Lines lines(s, in);
  const Tensor workspace = workspace_of(plan.forward_workspace(), in.q.device());
  plan.forward({.q = in.q.raw(),
                .k = lines.k.raw(),
                .v = lines.v.raw(),
                .query_lengths = raw_or_null(lines.query_lengths),
                .key_lengths = raw_or_null(lines.key_lengths),
                .out = out.raw(),
                .lse = lse.raw(),
                .scale = static_cast<float>(in.scale)},
               workspace.defined() ? workspace.raw() : nullptr);
  // A query behind the last token stands in the same triangle as the others, and was given what it would see.
  if (in.band.padding) clear_unseeing(out, out, in.first_visible);
}

void attention_backward_in_cudnn(const AttentionSizes& s, const ops::AttentionGradients& g, const Tensor& dout,
                                 const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in) {
  check_covered(in);
  CudnnPlans& plan = plans().of(shape_of(problem_of(in)));
  const Lines lines(s, in);
  // Where dout and out are zero, a query adds nothing to any gradient, and its own is zero.
  Tensor seen_dout = dout;
  if (in.band.padding) {
    seen_dout = Tensor::empty_like(dout);
    clear_unseeing(seen_dout, dout, in.first_visible);
  }
  const bool ring = in.band.carried > 0;
  const Tensor dq = given_or_new(g.dq, in.q);
  const Tensor dk = ring ? Tensor::empty_like(lines.k) : given_or_new(g.dk, in.k);
  const Tensor dv = ring ? Tensor::empty_like(lines.v) : given_or_new(g.dv, in.v);
  {
    const Tensor workspace = workspace_of(plan.backward_workspace(), in.q.device());
    plan.backward({.q = in.q.raw(),
                   .k = lines.k.raw(),
                   .v = lines.v.raw(),
                   .out = out.raw(),
                   .dout = seen_dout.raw(),
                   .lse = lse.raw(),
                   .query_lengths = raw_or_null(lines.query_lengths),
                   .key_lengths = raw_or_null(lines.key_lengths),
                   .dq = dq.raw(),
                   .dk = dk.raw(),
                   .dv = dv.raw(),
                   .scale = static_cast<float>(in.scale)},
                  workspace.defined() ? workspace.raw() : nullptr);
  }
  if (!ring) return;
  scatter_line(g.dk, g.dcache_k, dk, in.cache_head, lines.key_lengths, s.queries);
  scatter_line(g.dv, g.dcache_v, dv, in.cache_head, lines.key_lengths, s.queries);
}

void bind_cudnn_answers() {
  bind_cudnn({.why_no_plans = why_no_plans, .version = cudnn_library_version});
}

}  // namespace quire::cuda
