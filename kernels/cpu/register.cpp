#include <cstring>
#include <string>

#include "kernels/cpu/common.h"

extern "C" __attribute__((visibility("default"))) const char* quire_register_backend(const char* build_id,
                                                                                     std::string*) {
  if (std::strcmp(build_id, QUIRE_BUILD_ID) != 0) return nullptr;
  using namespace quire::cpu;
  bind_activation();
  bind_adafactor();
  bind_attention_backward();
  bind_attention_delta();
  bind_attention_forward();
  bind_axis();
  bind_block_attention();
  bind_choice();
  bind_convert();
  bind_cross_entropy();
  bind_elementwise();
  bind_embedding();
  bind_gemm();
  bind_grouped_cross_attention();
  bind_knn_attention();
  bind_knn_gate();
  bind_knn_search();
  bind_knn_storage();
  bind_moving_average();
  bind_norm();
  bind_optimizer();
  bind_place_chunks();
  bind_pointwise();
  bind_position();
  bind_rotary();
  bind_state();
  bind_stored_blocks();
  bind_vq_attention();
  bind_vq_caches();
  bind_vq_codebook();
  bind_vq_codes();
  return QUIRE_CPU_NAME;
}
