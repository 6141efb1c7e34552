#include "kernels/cuda/cudnn/cudnn_attention.h"

#include <map>
#include <mutex>

#include "core/check.h"
#include "kernels/cuda/cudnn/attention_gather.h"
#include "kernels/cuda/cudnn/cudnn_plans.h"
#include "kernels/cudnn_scratch.h"

namespace quire::cuda {

namespace {

// Holds the plans of all shapes so far. They stay, since building them takes seconds.
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

// Returns the table, which is never destroyed: the driver may have shut down before statics are.
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
  const Tensor& sequences = in.sequences;
  QUIRE_CHECK(sequences.defined() == in.band.several_documents,
              "attention: sequences go with several documents in a row, and only with them");
  QUIRE_CHECK(!sequences.defined() || (sequences.rank() == 2 && sequences.dim(1) == ops::kSequenceNumbers &&
                                       sequences.dtype() == DType::i32 && sequences.is_contiguous()),
              "attention: sequences are {} {}; they must be [sequences, {}] i32 and contiguous",
              sequences.shape().to_string(), name_of(sequences.dtype()), static_cast<int64_t>(ops::kSequenceNumbers));
}

// Holds keys, values and the places of sequences in them, as cuDNN reads them.
class Operands {
 public:
  Operands(const AttentionSizes& s, const ops::AttentionInputs& in) : lines(s, in), tables_(s, in) {
    const int64_t carried = in.band.carried;
    if (carried > 0) {
      line_lengths(lines.query_lengths, lines.key_lengths, in.first_visible, carried);
      gather_line(lines.k, in.k, in.cache_k, in.cache_head, lines.key_lengths);
      gather_line(lines.v, in.v, in.cache_v, in.cache_head, lines.key_lengths);
    }
    if (in.band.several_documents) sequence_tables(tables_, s, in.sequences, lines.key_lengths, carried);
    k = carried > 0 ? lines.k.raw() : in.k.raw();
    v = carried > 0 ? lines.v.raw() : in.v.raw();
    several_ = in.band.several_documents;
  }

  // Calls function(CudnnSequences) for every call of cuDNN.
  template <typename Function>
  void for_each_call(Function&& function) const {
    if (!several_) {
      function(CudnnSequences{.query_lengths = raw_or_null(lines.query_lengths),
                              .key_lengths = raw_or_null(lines.key_lengths)});
      return;
    }
    for (int64_t call = 0; call < tables_.calls; ++call) {
      const auto lengths = [&](int64_t of) { return tables_.lengths.select(0, call).select(0, of).raw(); };
      const auto offsets = [&](int64_t of) { return tables_.offsets.select(0, call).select(0, of).raw(); };
      function(CudnnSequences{.query_lengths = lengths(0),
                              .key_lengths = lengths(1),
                              .q = offsets(CudnnSequenceTables::kOfQ),
                              .k = offsets(CudnnSequenceTables::kOfK),
                              .v = offsets(CudnnSequenceTables::kOfV),
                              .out = offsets(CudnnSequenceTables::kOfOut),
                              .lse = offsets(CudnnSequenceTables::kOfLse)});
    }
  }

  const void *k, *v;
  const CudnnLines lines;

 private:
  static const void* raw_or_null(const Tensor& tensor) { return tensor.defined() ? tensor.raw() : nullptr; }

  CudnnSequenceTables tables_;
  bool several_ = false;
};

Tensor workspace_of(int64_t bytes, Device device) {
  return bytes == 0 ? Tensor() : Tensor::empty({bytes}, DType::u8, device);
}

std::string why_no_plans(const AttentionProblem& problem) {
  try {
    plans().of(shape_of(problem));
    return "";
  } catch (const Error& error) {
    return error.what();
  } catch (const DeviceError& error) {  // its library cannot start
    return error.what();
  }
}

}  // namespace

void attention_in_cudnn(const AttentionSizes& s, const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in) {
  check_covered(in);
  CudnnPlans& plan = plans().of(shape_of(problem_of(in)));
  const Operands operands(s, in);
  // cuDNN reads tiles of 64 or 128 queries, and the backward pass multiplies what it reads behind a sequence by zero.
  if (in.band.several_documents && in.band.padding) lse.zero();
  const Tensor workspace = workspace_of(plan.forward_workspace(), in.q.device());
  operands.for_each_call([&](const CudnnSequences& sequences) {
    plan.forward({.q = in.q.raw(),
                  .k = operands.k,
                  .v = operands.v,
                  .sequences = sequences,
                  .out = out.raw(),
                  .lse = lse.raw(),
                  .scale = static_cast<float>(in.scale)},
                 workspace.defined() ? workspace.raw() : nullptr);
  });
  // With one document in a row, a query behind the last token lies in the same triangle as the others and got a result
  // for the keys that it would see. With several documents it belongs to no sequence and got no result.
  if (in.band.padding) clear_unseeing(out, out, in.first_visible);
}

void attention_backward_in_cudnn(const AttentionSizes& s, const ops::AttentionGradients& g, const Tensor& dout,
                                 const Tensor& out, const Tensor& lse, const ops::AttentionInputs& in) {
  check_covered(in);
  CudnnPlans& plan = plans().of(shape_of(problem_of(in)));
  const Operands operands(s, in);
  const CudnnGradients written(operands.lines, g, dout, in);
  // Where dout and out are zero, a query adds nothing to any gradient, and its own is zero.
  if (written.dout.defined()) clear_unseeing(written.dout, dout, in.first_visible);
  const bool ring = in.band.carried > 0;
  if (in.band.several_documents && ring) {
    // Positions of no sequence stay as they are.
    written.dk.zero();
    written.dv.zero();
  }
  {
    const Tensor workspace = workspace_of(plan.backward_workspace(), in.q.device());
    operands.for_each_call([&](const CudnnSequences& sequences) {
      plan.backward({.q = in.q.raw(),
                     .k = operands.k,
                     .v = operands.v,
                     .out = out.raw(),
                     .dout = written.dout.defined() ? written.dout.raw() : dout.raw(),
                     .lse = lse.raw(),
                     .sequences = sequences,
                     .dq = written.dq.raw(),
                     .dk = written.dk.raw(),
                     .dv = written.dv.raw(),
                     .scale = static_cast<float>(in.scale)},
                    workspace.defined() ? workspace.raw() : nullptr);
    });
  }
  if (in.band.several_documents && in.band.padding) {
    clear_unseeing(written.dq, written.dq, in.first_visible);
    if (!ring) {
      // The key of a query that sees nothing is seen by none.
      clear_unseeing(written.dk, written.dk, in.first_visible);
      clear_unseeing(written.dv, written.dv, in.first_visible);
    }
  }
  if (!ring) return;
  scatter_line(g.dk, g.dcache_k, written.dk, in.cache_head, operands.lines.key_lengths, s.queries);
  scatter_line(g.dv, g.dcache_v, written.dv, in.cache_head, operands.lines.key_lengths, s.queries);
}

void answer_for_cudnn() {
  bind_cudnn({.why_no_plans = why_no_plans, .version = cudnn_library_version});
}

}  // namespace quire::cuda
