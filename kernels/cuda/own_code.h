// What this library was compiled for.
#pragma once

namespace quire::cuda {

// Whether the current GPU can run the library's kernels: code for one chip runs on no other (QUIRE_CUDA_CHIPS).
bool has_code_for_gpu();
// Whether it has warpgroups (warpgroup.h), the library code for them, and QUIRE_CUDA_WARPGROUPS does not refuse it.
bool multiplies_by_warpgroups();

}  // namespace quire::cuda
