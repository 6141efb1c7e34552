// Graphs as CUDA's header declares them (cuda_runtime.h here includes this): work that a stream gets while it captures
// is stored in a graph and not done.
#pragma once

#include <cstddef>
#include <functional>

#include "tests/support/cuda_shim/cuda_streams.h"

struct dim3 {
  unsigned x, y, z;
  constexpr dim3(unsigned x_ = 1, unsigned y_ = 1, unsigned z_ = 1) : x(x_), y(y_), z(z_) {}
};
struct cudaKernelNodeParams {
  void* func;
  dim3 gridDim;
  dim3 blockDim;
  unsigned sharedMemBytes;
  void** kernelParams;
  void** extra;
};
struct cudaGraphEdgeData;
using cudaGraph_t = void*;
using cudaGraphNode_t = void*;
using cudaGraphExec_t = void*;
enum cudaStreamCaptureMode { cudaStreamCaptureModeRelaxed = 2 };
enum cudaStreamCaptureStatus { cudaStreamCaptureStatusNone = 0, cudaStreamCaptureStatusActive = 1 };

cudaError_t cudaStreamBeginCapture(cudaStream_t stream, cudaStreamCaptureMode mode);
cudaError_t cudaStreamEndCapture(cudaStream_t stream, cudaGraph_t* graph);
cudaError_t cudaStreamGetCaptureInfo(cudaStream_t stream, cudaStreamCaptureStatus* status, unsigned long long* id,
                                     cudaGraph_t* graph, const cudaGraphNode_t** dependencies,
                                     const cudaGraphEdgeData** edges, size_t* count);
cudaError_t cudaGraphInstantiate(cudaGraphExec_t* launched, cudaGraph_t graph, unsigned long long flags);
cudaError_t cudaGraphExecKernelNodeSetParams(cudaGraphExec_t launched, cudaGraphNode_t node,
                                             const cudaKernelNodeParams* parameters);
cudaError_t cudaGraphLaunch(cudaGraphExec_t launched, cudaStream_t stream);
cudaError_t cudaGraphDestroy(cudaGraph_t graph);
cudaError_t cudaGraphExecDestroy(cudaGraphExec_t launched);

namespace quire::shim {

// Makes the work of a kernel with other parameters.
using Remake = std::function<std::function<void()>(const cudaKernelNodeParams& parameters)>;
// Gives work to a stream, or to the graph that it captures. For a kernel, `remake` makes its work anew.
void on_stream_or_graph(cudaStream_t stream, std::function<void()> work, const void* kernel = nullptr,
                        Remake remake = {});
// With `refuse`, graphs cannot be made from now on, as if memory were missing.
void refuse_graphs(bool refuse);
// Returns the number of graphs, launchable ones included, that are not destroyed.
int living_graphs();

}  // namespace quire::shim
