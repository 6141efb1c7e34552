# The hand-written CUDA kernels: compiled by nvcc into libquire_cuda.so, and as C++ into tests (tests/kernels/cuda).
set(QUIRE_CUDA_KERNELS
  activation.cu
  adafactor.cu
  attention_backward.cu
  attention_forward.cu
  bind.cpp
  cross_entropy.cu
  dropout.cu
  elementwise.cu
  embedding.cu
  norm.cu
  optimizer.cu
  position.cu
  reductions.cu
  rotary.cu
  state.cu)
