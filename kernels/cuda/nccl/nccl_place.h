// Settings of a rank's communicator.
#pragma once

#include <chrono>
#include <string>

#include "kernels/cuda/stream.h"

namespace quire::cuda {

struct NcclLimits {
  std::chrono::milliseconds look = std::chrono::milliseconds(20);  // between two looks at the communicator
  // An error of the network usually means that another rank has ended; this is the time that its own reason may take to
  // arrive.
  std::chrono::milliseconds reason = std::chrono::seconds(2);
  // The run ends this long after Control::overdue(), even when no rank answers.
  std::chrono::milliseconds silence = std::chrono::seconds(60);
  std::chrono::milliseconds farewell = std::chrono::seconds(8);  // to end the communicator; then it is left as it is
};

struct NcclPlace {
  std::string gpu;                 // its PCI bus id
  cudaStream_t compute = nullptr;  // operations begin after what it was given before
  std::string library = "libnccl.so.2";
  NcclLimits limits = {};
};

}  // namespace quire::cuda
