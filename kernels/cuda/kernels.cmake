# The hand-written CUDA kernels: compiled by nvcc into libquire_cuda.so, and as C++ into tests (tests/kernels/cuda).
set(QUIRE_CUDA_KERNELS
  attention_backward.cu
  attention_forward.cu
  bind.cpp
  elementwise.cu)
