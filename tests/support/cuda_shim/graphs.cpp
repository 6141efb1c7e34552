#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/support/cuda_shim/cuda_runtime.h"

namespace {

struct Node {
  std::function<void()> work;
  const void* kernel = nullptr;  // nullptr: no kernel
  quire::shim::Remake remake;
};

struct Graph {
  std::vector<std::unique_ptr<Node>> nodes;
  cudaGraphNode_t last = nullptr;
};

// Nodes are named by those of the graph it was made from.
struct Launched {
  std::unordered_map<cudaGraphNode_t, Node> nodes;
  std::vector<cudaGraphNode_t> order;
};

// No lock is needed, because one thread makes all calls.
cudaStream_t g_captured = nullptr;
Graph* g_graph = nullptr;
bool g_refuse = false;
int g_living = 0;

[[noreturn]] void give_up(const char* what) {
  std::fprintf(stderr, "cuda_shim: %s\n", what);
  std::abort();
}

}  // namespace

namespace quire::shim {

void on_stream_or_graph(cudaStream_t stream, std::function<void()> work, const void* kernel, Remake remake) {
  if (g_graph == nullptr || stream != g_captured) return on_stream(stream, std::move(work));
  g_graph->nodes.push_back(std::make_unique<Node>(Node{std::move(work), kernel, std::move(remake)}));
  g_graph->last = g_graph->nodes.back().get();
}

void refuse_graphs(bool refuse) {
  g_refuse = refuse;
}

int living_graphs() {
  return g_living;
}

}  // namespace quire::shim

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode) {
  if (stream == nullptr) return cudaErrorInvalidValue;  // the default stream is not captured
  if (g_graph != nullptr) give_up("two streams are captured");
  g_captured = stream;
  g_graph = new Graph;
  ++g_living;
  quire::shim::forbid_stream(stream);
  return cudaSuccess;
}

cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph) {
  if (g_graph == nullptr || stream != g_captured) return cudaErrorInvalidValue;
  *graph = std::exchange(g_graph, nullptr);
  g_captured = nullptr;
  quire::shim::forbid_stream(nullptr);
  return cudaSuccess;
}

cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long*,
                                     cudaGraph_t*, const cudaGraphNode_t** dependencies, const cudaGraphEdgeData**,
                                     size_t* count) {
  const bool active = g_graph != nullptr && stream == g_captured;
  *status = active ? cudaStreamCaptureStatusActive : cudaStreamCaptureStatusNone;
  *count = active && g_graph->last != nullptr ? 1 : 0;
  *dependencies = active ? &g_graph->last : nullptr;
  return cudaSuccess;
}

cudaError_t cudaGraphInstantiate(cudaGraphExec_t* launched, cudaGraph_t graph, unsigned long long) {
  if (g_refuse) return cudaErrorMemoryAllocation;
  auto made = std::make_unique<Launched>();
  for (const std::unique_ptr<Node>& node : static_cast<Graph*>(graph)->nodes) {
    made->nodes.emplace(node.get(), *node);
    made->order.push_back(node.get());
  }
  *launched = made.release();
  ++g_living;
  return cudaSuccess;
}

cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t launched, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* parameters) {
  auto& nodes = static_cast<Launched*>(launched)->nodes;
  const auto found = nodes.find(node);
  if (found == nodes.end() || found->second.kernel != parameters->func || parameters->extra != nullptr) {
    return cudaErrorInvalidValue;
  }
  const cudaLaunchConfig_t config{parameters->gridDim, parameters->blockDim, parameters->sharedMemBytes, nullptr};
  const cudaError_t error = check_launch(parameters->func, config);
  if (error != cudaSuccess) return error;
  found->second.work = found->second.remake(*parameters);
  return cudaSuccess;
}

// Parameters that are set after this call apply to later launches.
cudaError_t cudaGraphLaunch(cudaGraphExec_t launched, cudaStream_t stream) {
  const Launched& graph = *static_cast<Launched*>(launched);
  std::vector<std::function<void()>> works;
  works.reserve(graph.order.size());
  for (const cudaGraphNode_t node : graph.order) works.push_back(graph.nodes.at(node).work);
  quire::shim::on_stream(stream, [works = std::move(works)] {
    for (const std::function<void()>& work : works) work();
  });
  return cudaSuccess;
}

cudaError_t cudaGraphDestroy(cudaGraph_t graph) {
  delete static_cast<Graph*>(graph);
  --g_living;
  return cudaSuccess;
}

cudaError_t cudaGraphExecDestroy(cudaGraphExec_t launched) {
  delete static_cast<Launched*>(launched);
  --g_living;
  return cudaSuccess;
}
