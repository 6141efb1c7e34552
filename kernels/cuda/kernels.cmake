# The hand-written CUDA kernels: compiled by nvcc into libquire_cuda.so, and as C++ into tests (tests/kernels/cuda).
set(QUIRE_CUDA_KERNELS
  bind.cpp
  elementwise.cu
  norm.cu)
