// Whether a layer's attention is computed by this project's kernels or by cuDNN's: what decides it, which shapes cuDNN
// covers, and what a run has chosen.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>

#include "core/device.h"
#include "core/dtype.h"
#include "kernels/attention.h"

namespace quire {

// The shape of a call of ops::attention whose first_visible is an AttentionBand, without position terms and dropout.
// Names are those of kernels/attention.h.
struct AttentionProblem {
  int64_t rows = 0;
  int64_t queries = 0;
  int64_t carried = 0;  // keys of the ring that a query sees at most; 0: there is no ring
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t size = 0;
  int64_t value_size = 0;
  std::optional<int64_t> window = {};  // largest distance; without a value, or beyond all keys, there is no limit
  DType type = DType::bf16;
  bool several_documents = false;  // a row may hold several

  // "queries 512, carried 256, heads 8/2, size 64/64, window 256, bf16, several documents in a row": all but the rows,
  // which do not decide.
  std::string to_string() const;
};

// The problem of a call.
AttentionProblem problem_of(const ops::AttentionInputs& in);

// Empty, or why cuDNN cannot compute it on any GPU. No library is asked; limits are those of cuDNN's fused attention:
// https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/operations/Attention.html
std::string why_not_in_cudnn(const AttentionProblem& problem);

// cuDNN's deterministic backward pass keeps a product for each pair of query and key, so that its workspace grows with
// T S. A shape that needs more than this has no plan.
inline constexpr int64_t kCudnnWorkspaceBytes = int64_t{512} << 20;
// What its forward pass needs at most.
inline constexpr int64_t kCudnnForwardWorkspaceBytes = int64_t{64} << 10;
// What its backward pass needs at most, found by building plans of cuDNN 9.19 for an A100 and an H100 that are
// described to it (tests/kernels/cuda/cudnn_plans_test.cpp compares); above kCudnnWorkspaceBytes there is no plan.
int64_t cudnn_backward_workspace(const AttentionProblem& problem);

// What a backend with cuDNN answers. Bound when the backend's library is loaded.
struct CudnnAnswers {
  // Builds the plans of both passes for the GPU at hand, which are kept. Empty, or why there are none: no library, an
  // older version, a shape that it refuses, or one that needs too large a workspace.
  std::string (*why_no_plans)(const AttentionProblem& problem) = nullptr;
  std::string (*version)() = nullptr;  // "9.19.0"; empty without the library
};
void bind_cudnn(const CudnnAnswers& answers);
// Asks why_not_in_cudnn, and then the backend.
std::string why_no_cudnn_plans(const AttentionProblem& problem);
// For plans of memory: the same where a backend answers. Without one, whether there can be plans on some GPU.
bool may_be_in_cudnn(const AttentionProblem& problem);
// "" when there is no cuDNN.
std::string cudnn_version();

// What was chosen for each problem. The text goes into checkpoints, so that a run goes on with what it began with.
class AttentionChoices {
 public:
  void set(const AttentionProblem& problem, ops::AttentionKernels kernels);
  // No value: nothing was chosen.
  std::optional<ops::AttentionKernels> find(const AttentionProblem& problem) const;
  bool empty() const { return chosen_.empty(); }

  // heading: the versions that the choices hold for, one line. A line per problem follows.
  std::string to_text(const std::string& heading) const;
  // Adds the choices of a text; returns false, and adds nothing, when it has another heading. An empty text has none.
  // Error(checkpoint) when a line says nothing.
  bool add(const std::string& text, const std::string& heading);

 private:
  std::map<std::string, ops::AttentionKernels> chosen_;  // by AttentionProblem::to_string
};

// Runs both passes of the problem on the device with each kind of kernels, on zeros, and returns the faster kind. The
// plans of cuDNN exist (why_no_cudnn_plans). seconds, for tests: measures one kind of kernels.
ops::AttentionKernels measure_attention(const AttentionProblem& problem, Device device,
                                        const std::function<double(const std::function<void()>&)>& seconds = {});

}  // namespace quire
