// Chooses whether this project's kernels or cuDNN's compute a layer's attention: the shapes that cuDNN covers, and the
// choices of a run.
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
  int64_t carried = 0;  // the largest number of ring keys that a query sees; 0: there is no ring
  int64_t heads = 0;
  int64_t kv_heads = 0;
  int64_t size = 0;
  int64_t value_size = 0;
  std::optional<int64_t> window = {};  // largest distance; no value, or one beyond all keys, means no limit
  DType type = DType::bf16;
  bool several_documents = false;  // a row may have several documents

  // Returns "queries 512, carried 256, heads 8/2, size 64/64, window 256, bf16, several documents in a row": everything
  // but the rows, which do not affect the choice.
  std::string to_string() const;
};

// Returns the problem of a call.
AttentionProblem problem_of(const ops::AttentionInputs& in);

// Returns why cuDNN cannot compute the problem on any GPU; empty when it may. No library is asked; the limits are those
// of cuDNN's fused attention: https://docs.nvidia.com/deeplearning/cudnn/frontend/latest/operations/Attention.html
std::string why_not_in_cudnn(const AttentionProblem& problem);

// The largest workspace of a plan. cuDNN's deterministic backward pass stores a product for each pair of query and key,
// so its workspace grows with T S. A shape that needs more has no plan.
inline constexpr int64_t kCudnnWorkspaceBytes = int64_t{512} << 20;
// The largest workspace of its forward pass.
inline constexpr int64_t kCudnnForwardWorkspaceBytes = int64_t{64} << 10;
// Returns the largest workspace of its backward pass, found by building plans of cuDNN 9.19 for descriptions of an A100
// and an H100 (tests/kernels/cuda/cudnn_plans_test.cpp compares); above kCudnnWorkspaceBytes there is no plan.
int64_t cudnn_backward_workspace(const AttentionProblem& problem);

// Functions of a backend with cuDNN, bound when the backend's library is loaded.
struct CudnnAnswers {
  // Builds the plans of both passes for the present GPU and keeps them. Returns why there are none, otherwise an empty
  // text: no library, an older version, a shape that it refuses, or one that needs too large a workspace.
  std::string (*why_no_plans)(const AttentionProblem& problem) = nullptr;
  std::string (*version)() = nullptr;  // "9.19.0"; empty without the library
};
void bind_cudnn(const CudnnAnswers& answers);
// Returns the result of why_not_in_cudnn or, if that is empty, of the backend.
std::string why_no_cudnn_plans(const AttentionProblem& problem);
// For plans of memory: returns whether there are plans. Without a backend, returns whether there can be plans on some
// GPU.
bool may_be_in_cudnn(const AttentionProblem& problem);
// Returns the version; empty without cuDNN.
std::string cudnn_version();

// The chosen kernels of each problem. Checkpoints store the text, so that a resumed run uses the same kernels.
class AttentionChoices {
 public:
  void set(const AttentionProblem& problem, ops::AttentionKernels kernels);
  // Returns no value when nothing was chosen.
  std::optional<ops::AttentionKernels> find(const AttentionProblem& problem) const;
  bool empty() const { return chosen_.empty(); }

  // `heading`: one line with the versions that the choices are valid for. A line per problem follows.
  std::string to_text(const std::string& heading) const;
  // Adds the choices of a text; returns false, and adds nothing, when it has another heading. An empty text has no
  // choices. Throws Error(checkpoint) when a line cannot be parsed.
  bool add(const std::string& text, const std::string& heading);

 private:
  std::map<std::string, ops::AttentionKernels> chosen_;  // by AttentionProblem::to_string
};

// Runs both passes of the problem on the device with each kind of kernels, on random numbers, and returns the faster
// kind. The plans of cuDNN must exist (why_no_cudnn_plans). seconds, for tests: measures one kind of kernels.
ops::AttentionKernels measure_attention(const AttentionProblem& problem, Device device,
                                        const std::function<double(const std::function<void()>&)>& seconds = {});

}  // namespace quire
