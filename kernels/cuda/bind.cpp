#include "kernels/cuda/bind.h"

namespace quire::cuda {

void bind_all() {
  bind_activation();
  bind_adafactor();
  bind_attention_backward();
  bind_attention_delta();
  bind_attention_forward();
  bind_axis();
  bind_block_attention();
  bind_block_attention_backward();
  bind_choice();
  bind_cross_entropy();
  bind_dropout();
  bind_elementwise();
  bind_embedding();
  bind_grouped_cross_attention();
  bind_grouped_cross_attention_backward();
  bind_knn_attention();
  bind_knn_drop();
  bind_knn_gate();
  bind_knn_search();
  bind_knn_storage();
  bind_l2_norm();
  bind_norm();
  bind_norm_backward();
  bind_optimizer();
  bind_place_blocks();
  bind_place_chunks();
  bind_pointwise();
  bind_position();
  bind_reductions();
  bind_rotary();
  bind_state();
  bind_stored_attention();
  bind_vq_attention();
  bind_vq_caches();
  bind_vq_codebook();
  bind_vq_codes();
  bind_vq_lookup();
}

}  // namespace quire::cuda
