#include "kernels/attention_choices.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "core/check.h"
#include "kernels/random_values.h"

namespace quire {

namespace {

constexpr int64_t kMaxFeatures = 256;
constexpr int64_t kFeatureStep = 8;

CudnnAnswers& answers() {
  static CudnnAnswers bound;
  return bound;
}

const char* name_of(ops::AttentionKernels kernels) {
  return kernels == ops::AttentionKernels::cudnn ? "cudnn" : "own";
}

int64_t bytes_of(DType type) {
  return static_cast<int64_t>(size_of(type));
}

int64_t round_up(int64_t count, int64_t multiple) {
  return (count + multiple - 1) / multiple * multiple;
}

// Cuts every row into two documents and returns their sequences. The second one sees nothing of the first; `first` is
// first_visible.
std::vector<int32_t> cut_in_two(const AttentionProblem& p, std::vector<int32_t>& first) {
  const auto half = static_cast<int32_t>((p.queries + 1) / 2);
  const auto queries = static_cast<int32_t>(p.queries);
  std::vector<int32_t> sequences;
  for (int32_t row = 0; row < p.rows; ++row) {
    sequences.insert(sequences.end(), {row, 0, half, row, half, queries - half});
    for (int32_t i = half; i < queries; ++i) {
      int32_t& of_query = first[static_cast<size_t>(row * p.queries + i)];
      of_query = std::max(of_query, half);
    }
  }
  return sequences;
}

// Returns the smallest time of several calls, after one that is not counted.
double seconds_on(Device device, const std::function<void()>& call) {
  constexpr int kCalls = 5;
  DeviceBackend& backend = device_backend(device.kind);
  call();
  double min_seconds = std::numeric_limits<double>::max();
  for (int i = 0; i < kCalls; ++i) {
    backend.synchronize();
    const auto started = std::chrono::steady_clock::now();
    call();
    backend.synchronize();
    min_seconds =
        std::min(min_seconds, std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
  }
  return min_seconds;
}

}  // namespace

std::string AttentionProblem::to_string() const {
  return fmt::format("queries {}, carried {}, heads {}/{}, size {}/{}, window {}, {}{}", queries, carried, heads,
                     kv_heads, size, value_size, window ? std::to_string(*window) : "none", quire::name_of(type),
                     several_documents ? ", several documents in a row" : "");
}

AttentionProblem problem_of(const ops::AttentionInputs& in) {
  return {.rows = in.q.dim(0),
          .queries = in.q.dim(1),
          .carried = in.band.carried,
          .heads = in.q.dim(2),
          .kv_heads = in.k.dim(2),
          .size = in.q.dim(3),
          .value_size = in.v.dim(3),
          .window = in.band.window,
          .type = in.q.dtype(),
          .several_documents = in.band.several_documents};
}

std::string why_not_in_cudnn(const AttentionProblem& p) {
  if (p.type != DType::bf16) {
    return fmt::format("its backward pass has no {}; use run.precision: bf16", quire::name_of(p.type));
  }
  for (const int64_t features : {p.size, p.value_size}) {
    if (features % kFeatureStep != 0 || features > kMaxFeatures) {
      return fmt::format("heads have {} features; it needs a multiple of {} up to {}", features, kFeatureStep,
                         kMaxFeatures);
    }
  }
  if (p.queries == 1 && p.carried == 0) return "it refuses one query with one key";
  return "";
}

int64_t cudnn_backward_workspace(const AttentionProblem& p) {
  constexpr int64_t kQueryTile = 64;
  constexpr int64_t kKeyTile = 128;
  constexpr int64_t kSmallTables = int64_t{64} << 10;
  const int64_t keys = p.carried + p.queries;
  const int64_t heads = p.rows * p.heads;
  int64_t bytes = kSmallTables;
  bytes += heads * round_up(p.queries, kQueryTile) * round_up(keys, kKeyTile) * bytes_of(DType::bf16);
  bytes += heads * p.queries * bytes_of(DType::f32);  // dout . out
  // Gradients of keys and values for each query head, before they are added up.
  const DType of_heads = p.several_documents ? DType::f32 : DType::bf16;
  if (p.heads != p.kv_heads) bytes += heads * keys * (p.size + p.value_size) * bytes_of(of_heads);
  return bytes;
}

void bind_cudnn(const CudnnAnswers& bound) {
  answers() = bound;
}

std::string why_no_cudnn_plans(const AttentionProblem& problem) {
  const std::string why = why_not_in_cudnn(problem);
  if (!why.empty()) return why;
  if (answers().why_no_plans == nullptr) return "the run computes on no GPU";
  return answers().why_no_plans(problem);
}

bool may_be_in_cudnn(const AttentionProblem& problem) {
  if (answers().why_no_plans != nullptr) return why_no_cudnn_plans(problem).empty();
  return why_not_in_cudnn(problem).empty() && cudnn_backward_workspace(problem) <= kCudnnWorkspaceBytes;
}

std::string cudnn_version() {
  return answers().version == nullptr ? "" : answers().version();
}

void AttentionChoices::set(const AttentionProblem& problem, ops::AttentionKernels kernels) {
  chosen_[problem.to_string()] = kernels;
}

std::optional<ops::AttentionKernels> AttentionChoices::find(const AttentionProblem& problem) const {
  const auto found = chosen_.find(problem.to_string());
  return found == chosen_.end() ? std::nullopt : std::optional(found->second);
}

std::string AttentionChoices::to_text(const std::string& heading) const {
  if (chosen_.empty()) return "";
  std::string text = heading + '\n';
  for (const auto& [problem, kernels] : chosen_) text += fmt::format("{}: {}\n", problem, name_of(kernels));
  return text;
}

bool AttentionChoices::add(const std::string& text, const std::string& heading) {
  if (text.empty()) return true;
  if (text.rfind(heading + '\n', 0) != 0) return false;
  for (size_t at = heading.size() + 1; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    const std::string line = text.substr(at, end - at);
    const size_t colon = line.rfind(": ");
    const std::string chosen = colon == std::string::npos ? "" : line.substr(colon + 2);
    if (chosen != "own" && chosen != "cudnn") {
      fail(ErrorKind::checkpoint, "choices of attention: \"{}\" names no kernels", line);
    }
    chosen_[line.substr(0, colon)] = chosen == "own" ? ops::AttentionKernels::own : ops::AttentionKernels::cudnn;
    at = end + 1;
  }
  return true;
}

ops::AttentionKernels measure_attention(const AttentionProblem& p, Device device,
                                        const std::function<double(const std::function<void()>&)>& seconds) {
  ops::AttentionInputs in;
  in.q = random_values({p.rows, p.queries, p.heads, p.size}, p.type, device);
  in.k = random_values({p.rows, p.queries, p.kv_heads, p.size}, p.type, device);
  in.v = random_values({p.rows, p.queries, p.kv_heads, p.value_size}, p.type, device);
  ops::AttentionGradients gradients;
  gradients.dq = Tensor::empty_like(in.q);
  gradients.dk = Tensor::empty_like(in.k);
  gradients.dv = Tensor::empty_like(in.v);
  if (p.carried > 0) {
    in.cache_k = random_values({p.rows, p.carried, p.kv_heads, p.size}, p.type, device);
    in.cache_v = random_values({p.rows, p.carried, p.kv_heads, p.value_size}, p.type, device);
    in.cache_head = Tensor::zeros({p.rows}, DType::i32, device);
    gradients.dcache_k = Tensor::empty_like(in.cache_k);
    gradients.dcache_v = Tensor::empty_like(in.cache_v);
  }
  // Rings are full, as in the middle of a document.
  std::vector<int32_t> first;
  for (int64_t i = 0; i < p.rows * p.queries; ++i) {
    const int64_t query = i % p.queries;
    first.push_back(static_cast<int32_t>(std::max(-p.carried, p.window ? query - *p.window : -p.carried)));
  }
  in.band = {.window = p.window, .carried = p.carried, .several_documents = p.several_documents};
  if (p.several_documents) {
    in.sequences = Tensor::from(cut_in_two(p, first), {2 * p.rows, ops::kSequenceNumbers}, device);
  }
  in.first_visible = Tensor::from(first, {p.rows, p.queries}, device);
  const Tensor out = Tensor::zeros({p.rows, p.queries, p.heads, p.value_size}, p.type, device);
  const Tensor dout = random_values(out.shape(), p.type, device);
  const Tensor lse = Tensor::zeros({p.rows, p.heads, p.queries}, wide_type(p.type), device);
  const auto time_of = [&](ops::AttentionKernels kernels) {
    in.kernels = kernels;
    const auto both_passes = [&] {
      ops::attention(out, lse, in);
      ops::attention_backward(gradients, dout, out, lse, in);
    };
    return seconds ? seconds(both_passes) : seconds_on(device, both_passes);
  };
  const double own = time_of(ops::AttentionKernels::own);
  return time_of(ops::AttentionKernels::cudnn) < own ? ops::AttentionKernels::cudnn : ops::AttentionKernels::own;
}

}  // namespace quire
