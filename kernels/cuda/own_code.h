// Checks for which GPUs this library was compiled.
#pragma once

namespace quire::cuda {

// Says whether the current GPU can run the library's kernels: code for one chip runs on no other, and a library that
// was built for the chips of a machine without a GPU has none (QUIRE_CUDA_CHIPS).
bool has_code_for_gpu();

}  // namespace quire::cuda
