#include <cstring>
#include <string>

#include "kernels/cpu/common.h"

extern "C" __attribute__((visibility("default"))) const char* quire_register_backend(const char* build_id,
                                                                                     std::string*) {
  if (std::strcmp(build_id, QUIRE_BUILD_ID) != 0) return nullptr;
  quire::cpu::bind_all();
  return QUIRE_CPU_NAME;
}
