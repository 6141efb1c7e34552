// Calls on the compute stream that are kept back and given to it together, as CUDA graphs (run.graphs): the host then
// pays for one call where it paid for a hundred.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <initializer_list>
#include <string>
#include <unordered_map>
#include <vector>

#include "core/device.h"
#include "kernels/cuda/stream.h"

namespace quire::cuda {

// A span is what is collected until something needs all of it on the stream (flush(), stream()), kMostCalls calls at
// most. A span that comes for the second time is recorded as a graph. From then on the host sets what has changed among
// the parameters of kernels, and launches the graph. Two spans are the same when they have the same kernels and the
// same other calls in the same order; so a graph stands for the very calls that were made, whatever the host does
// between them. What calls do does not depend on whether they are collected.
//
// One thread makes all calls. What a call uses may be freed when it has been collected, as when it has been made:
// memory that is used again is used by a later call. Before memory goes back to the driver, or another stream may use
// it, flush() is called.
class CallQueue {
 public:
  // Launches a kernel of the type that it was made for; parameters: their addresses.
  using Launcher = cudaError_t (*)(const cudaLaunchConfig_t& config, const void* kernel, void** parameters);
  struct Parameter {
    const void* value;
    size_t bytes;
  };
  static constexpr size_t kMostCalls = 128;

  // Collects for a stream, which is not the default one, until stop(), which also forgets all graphs.
  void start(cudaStream_t stream) { stream_ = stream; }
  void stop();
  bool collects() const { return stream_ != nullptr; }
  bool has_calls() const { return !calls_.empty(); }

  // A launch of a kernel; values of parameters are copied.
  void add_kernel(const void* kernel, Launcher launcher, const cudaLaunchConfig_t& config,
                  std::initializer_list<Parameter> parameters);
  // Another call, which makes work on the stream that it is given and nothing else. Calls with the same key make the
  // same work: the key has all that it depends on, addresses among it.
  void add(const char* kind, const void* key, size_t key_bytes, std::function<void(cudaStream_t)> call);
  // Gives what has been collected to the stream. DeviceError, and none of it is given again.
  void flush();

  DeviceBackend::CallCounts counts() const;

 private:
  struct alignas(16) Unit {
    std::byte bytes[16];
  };
  struct Call {
    // Of kernels.
    const void* kernel = nullptr;
    Launcher launcher = nullptr;
    cudaLaunchConfig_t config{};
    size_t first_offset = 0;  // into offsets_
    size_t parameters = 0;
    size_t first_unit = 0, units = 0;  // of values_
    // Of other calls.
    std::function<void(cudaStream_t)> other;
  };
  struct KernelNode {
    cudaGraphNode_t node;
    dim3 grid, block;  // as they are set
  };
  struct Graph {
    int64_t seen = 0;
    int64_t last_used = 0;  // the flush
    cudaGraph_t recorded = nullptr;
    cudaGraphExec_t launched = nullptr;  // nullptr: not recorded yet
    std::vector<KernelNode> kernels;
    std::vector<Unit> values;  // of their parameters, as they are set
  };

  void append(const char* kind, const void* key, size_t bytes);
  void** addresses_of(const Call& call);
  cudaError_t launch(const Call& call);
  void give_one_by_one();
  bool has_room();
  void record(Graph& graph);
  void set_changed(Graph& graph);
  static void destroy(Graph& graph);

  cudaStream_t stream_ = nullptr;
  std::vector<Call> calls_;
  std::vector<size_t> offsets_;                    // of parameters, in units from the first of their call
  std::vector<Unit> values_;                       // of all parameters
  std::vector<void*> addresses_;                   // of the parameters of a call that is being made
  std::string key_;                                // of the span
  std::unordered_map<std::string, Graph> graphs_;  // by key
  int64_t recorded_ = 0;                           // of them
  int64_t flushes_ = 0;
  DeviceBackend::CallCounts counts_;
};

CallQueue& call_queue();

}  // namespace quire::cuda
