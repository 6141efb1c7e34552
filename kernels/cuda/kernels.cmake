# The CUDA kernels and the calls of cuBLASLt and cuDNN: compiled into libquire_cuda.so, and as C++ into tests
# (tests/kernels/cuda). Every family has a folder, whose sources are found.
include(${PROJECT_SOURCE_DIR}/kernels/binders.cmake)
file(GLOB QUIRE_CUDA_KERNELS CONFIGURE_DEPENDS ${CMAKE_CURRENT_LIST_DIR}/*/*.cu)
list(APPEND QUIRE_CUDA_KERNELS
  ${CMAKE_CURRENT_LIST_DIR}/cudnn/cudnn_attention.cpp
  ${CMAKE_CURRENT_LIST_DIR}/cudnn/cudnn_shape.cpp
  ${CMAKE_CURRENT_LIST_DIR}/products/gemm.cpp
  ${CMAKE_CURRENT_LIST_DIR}/products/product_plans.cpp)
quire_binders(${CMAKE_CURRENT_BINARY_DIR}/cuda_binders.cpp quire::cuda ${QUIRE_CUDA_KERNELS})
