// What this library was compiled for.
#pragma once

namespace quire::cuda {

// Whether the current GPU can run the library's kernels: code for one chip runs on no other (QUIRE_CUDA_CHIPS).
bool has_code_for_gpu();

}  // namespace quire::cuda
