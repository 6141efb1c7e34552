// Binds every slot to its CUDA kernel.
#pragma once

namespace quire::cuda {

// Calls every bind_NAME() of the kernels (kernels/binders.cmake).
void bind_all();

}  // namespace quire::cuda
