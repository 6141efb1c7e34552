// The families of CUDA kernels.
#pragma once

namespace quire::cuda {

// Error(config) for an environment variable with a value that these kernels do not know.
void require_known_environment();

// Binds every slot to its CUDA kernel.
void bind_all();

void bind_activation();
void bind_adafactor();
void bind_attention_backward();
void bind_attention_delta();
void bind_attention_forward();
void bind_axis();
void bind_block_attention();
void bind_block_attention_backward();
void bind_choice();
void bind_cross_entropy();
void bind_dropout();
void bind_elementwise();
void bind_embedding();
void bind_gemm();
void bind_grouped_cross_attention();
void bind_grouped_cross_attention_backward();
void bind_knn_attention();
void bind_knn_drop();
void bind_knn_gate();
void bind_knn_search();
void bind_knn_storage();
void bind_l2_norm();
void bind_norm();
void bind_norm_backward();
void bind_optimizer();
void bind_place_blocks();
void bind_place_chunks();
void bind_pointwise();
void bind_position();
void bind_reductions();
void bind_rotary();
void bind_state();
void bind_stored_attention();
void bind_vq_attention();
void bind_vq_caches();
void bind_vq_codebook();
void bind_vq_codes();
void bind_vq_lookup();

}  // namespace quire::cuda
