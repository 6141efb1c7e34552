#include "kernels/cuda/call_queue.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/check.h"

namespace quire::cuda {

namespace {

// Fewer calls are made one by one: a launch of a graph costs as much as a few of kernels.
constexpr size_t kFewestCalls = 4;
// A graph holds memory of the GPU. Steps of a model have tens of spans.
constexpr int64_t kMostGraphs = 256;
constexpr size_t kMostSpans = 1024;   // that are remembered
constexpr int64_t kUnused = 4 * 256;  // flushes after which a graph makes room for another

// Grid, block and parameters of a node can be changed.
struct KernelKey {
  const void* kernel;
  size_t shared_bytes;
};

}  // namespace

void CallQueue::stop() {
  flush();
  stream_ = nullptr;
  for (auto& [key, graph] : graphs_) destroy(graph);
  graphs_.clear();
  recorded_ = 0;
}

void CallQueue::append(const char* kind, const void* key, size_t bytes) {
  key_.append(kind).append(1, ' ').append(std::to_string(bytes)).append(1, ' ');
  key_.append(static_cast<const char*>(key), bytes);
}

void CallQueue::add_kernel(const void* kernel, Launcher launcher, const cudaLaunchConfig_t& config,
                           std::initializer_list<Parameter> parameters) {
  const KernelKey key{kernel, config.dynamicSmemBytes};
  append("kernel", &key, sizeof key);
  Call& call = calls_.emplace_back();
  call.kernel = kernel;
  call.launcher = launcher;
  call.config = config;
  call.config.stream = stream_;
  call.first_offset = offsets_.size();
  call.parameters = parameters.size();
  call.first_unit = values_.size();
  for (const Parameter& parameter : parameters) {
    const size_t at = values_.size();
    offsets_.push_back(at - call.first_unit);
    values_.resize(at + (parameter.bytes + sizeof(Unit) - 1) / sizeof(Unit));
    std::memcpy(values_.data() + at, parameter.value, parameter.bytes);
  }
  call.units = values_.size() - call.first_unit;
  if (calls_.size() == kMostCalls) flush();
}

void CallQueue::add(const char* kind, const void* key, size_t key_bytes, std::function<void(cudaStream_t)> call) {
  append(kind, key, key_bytes);
  calls_.emplace_back().other = std::move(call);
  if (calls_.size() == kMostCalls) flush();
}

void** CallQueue::addresses_of(const Call& call) {
  addresses_.clear();
  for (size_t i = 0; i < call.parameters; ++i) {
    addresses_.push_back(values_.data() + call.first_unit + offsets_[call.first_offset + i]);
  }
  return addresses_.data();
}

cudaError_t CallQueue::launch(const Call& call) {
  return call.launcher(call.config, call.kernel, addresses_of(call));
}

void CallQueue::give_one_by_one() {
  for (const Call& call : calls_) {
    if (call.kernel != nullptr) {
      check(launch(call));
    } else {
      call.other(stream_);
    }
  }
}

void CallQueue::destroy(Graph& graph) {
  if (graph.launched != nullptr) static_cast<void>(cudaGraphExecDestroy(graph.launched));
  if (graph.recorded != nullptr) static_cast<void>(cudaGraphDestroy(graph.recorded));
}

bool CallQueue::has_room() {
  if (recorded_ < kMostGraphs) return true;
  const auto oldest = std::min_element(graphs_.begin(), graphs_.end(), [](const auto& a, const auto& b) {
    return std::pair(a.second.launched == nullptr, a.second.last_used) <
           std::pair(b.second.launched == nullptr, b.second.last_used);
  });
  if (flushes_ - oldest->second.last_used < kUnused) return false;
  destroy(oldest->second);
  graphs_.erase(oldest);
  --recorded_;
  return true;
}

// The nodes of a graph are one behind the other, as the calls are on a stream.
void CallQueue::record(Graph& graph) {
  Graph made;
  check(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeRelaxed));
  try {
    for (const Call& call : calls_) {
      if (call.kernel == nullptr) {
        call.other(stream_);
        continue;
      }
      check(launch(call));
      cudaStreamCaptureStatus status{};
      const cudaGraphNode_t* last = nullptr;
      size_t count = 0;
      check(cudaStreamGetCaptureInfo(stream_, &status, nullptr, nullptr, &last, nullptr, &count));
      if (status != cudaStreamCaptureStatusActive || count != 1) {
        throw DeviceError("CUDA: a kernel that is no node of a graph");
      }
      made.kernels.push_back({*last, call.config.gridDim, call.config.blockDim});
    }
    check(cudaStreamEndCapture(stream_, &made.recorded));
    check(cudaGraphInstantiate(&made.launched, made.recorded, 0));
  } catch (const DeviceError& error) {
    if (made.recorded == nullptr) static_cast<void>(cudaStreamEndCapture(stream_, &made.recorded));
    destroy(made);
    cudaGetLastError();  // forgotten: it is thrown
    throw DeviceError(fmt::format("{}, while {} calls were recorded as a graph; run.graphs: false does without graphs",
                                  error.what(), calls_.size()));
  }
  made.values = values_;
  made.seen = graph.seen;
  made.last_used = graph.last_used;
  graph = std::move(made);
  ++recorded_;
}

void CallQueue::set_changed(Graph& graph) {
  const auto equal = [](dim3 a, dim3 b) { return a.x == b.x && a.y == b.y && a.z == b.z; };
  size_t kernel = 0;
  for (const Call& call : calls_) {
    if (call.kernel == nullptr) continue;
    KernelNode& node = graph.kernels[kernel++];
    Unit* const set = graph.values.data() + call.first_unit;
    const Unit* const wanted = values_.data() + call.first_unit;
    const size_t bytes = call.units * sizeof(Unit);
    if (equal(node.grid, call.config.gridDim) && equal(node.block, call.config.blockDim) &&
        (bytes == 0 || std::memcmp(set, wanted, bytes) == 0)) {
      continue;
    }
    cudaKernelNodeParams parameters{};
    parameters.func = const_cast<void*>(call.kernel);
    parameters.gridDim = node.grid = call.config.gridDim;
    parameters.blockDim = node.block = call.config.blockDim;
    parameters.sharedMemBytes = static_cast<unsigned>(call.config.dynamicSmemBytes);
    parameters.kernelParams = addresses_of(call);
    check(cudaGraphExecKernelNodeSetParams(graph.launched, node.node, &parameters));
    std::copy_n(wanted, call.units, set);
    ++counts_.changed;
  }
}

void CallQueue::flush() {
  if (calls_.empty()) return;
  // Calls are given once, also when one of them fails.
  struct Emptied {
    CallQueue& queue;
    ~Emptied() {
      queue.calls_.clear();
      queue.offsets_.clear();
      queue.values_.clear();
      queue.key_.clear();
    }
  } emptied{*this};
  counts_.calls += static_cast<int64_t>(calls_.size());
  ++counts_.spans;
  if (calls_.size() < kFewestCalls) return give_one_by_one();
  if (graphs_.size() >= kMostSpans) std::erase_if(graphs_, [](const auto& of) { return !of.second.launched; });
  Graph& graph = graphs_[key_];
  graph.last_used = ++flushes_;
  ++graph.seen;
  if (graph.launched == nullptr && graph.seen > 1 && has_room()) {
    record(graph);
  } else if (graph.launched != nullptr) {
    set_changed(graph);
  }
  if (graph.launched == nullptr) return give_one_by_one();
  check(cudaGraphLaunch(graph.launched, stream_));
  counts_.in_graphs += static_cast<int64_t>(calls_.size());
}

DeviceBackend::CallCounts CallQueue::counts() const {
  DeviceBackend::CallCounts counts = counts_;
  counts.graphs = recorded_;
  return counts;
}

// Never destroyed: the driver may have shut down before statics are.
CallQueue& call_queue() {
  static CallQueue& one = *new CallQueue;
  return one;
}

}  // namespace quire::cuda
