#include <cstring>

#include "kernels/cuda/bind.h"

extern "C" __attribute__((visibility("default"))) const char* quire_register_backend(const char* build_id) {
  if (std::strcmp(build_id, QUIRE_BUILD_ID) != 0) return nullptr;
  quire::cuda::bind_all();
  return "cuda";
}
