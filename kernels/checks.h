// Checks that the kernels of all devices make on their operands. Each throws Error(internal) that names the operation.
#pragma once

#include <initializer_list>

#include "kernels/cross_entropy.h"
#include "kernels/gemm.h"
#include "kernels/rotary.h"

namespace quire {

// Throws unless all tensors are contiguous and have the same type and number of elements.
void require_alike(const char* op, std::initializer_list<const Tensor*> tensors);
// Returns K, the length of the sums.
int64_t check_gemm(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& options);
void check_copy(const Tensor& out, const Tensor& in);
void check_convert(const Tensor& out, const Tensor& in);
void check_add_bias(const Tensor& out, const Tensor& in, const Tensor& bias);
void check_scale_by(const Tensor& out, const Tensor& in, const Tensor& factor);
void check_dropout(const Tensor& out, const Tensor& in, const Tensor& residual);

void check_sum_rows(const Tensor& out, const Tensor& in);
void check_scale_heads(const Tensor& out, const Tensor& x, const Tensor& s);
void check_scale_heads_backward(const Tensor& dx, const Tensor& ds, const Tensor& dy, const Tensor& x, const Tensor& s);

// Used by rms_norm, and twice by layer_norm: with weight and rstd, and with bias and mean.
void check_norm(const char* op, const Tensor& y, const Tensor& x, const Tensor& weight, const Tensor& per_row);
void check_norm_backward(const char* op, const Tensor& dx, const Tensor& dweight, const Tensor& dy, const Tensor& x,
                         const Tensor& weight, const Tensor& per_row);
void check_l2_norm(const char* op, const Tensor& out, const Tensor& x, const Tensor& rnorm);

void check_embedding(const Tensor& out, const Tensor& table, const Tensor& ids);
void check_embedding_backward(const Tensor& dtable, const Tensor& dout, const Tensor& ids);
void check_cross_entropy(const Tensor& nll, const Tensor& dlogits, const Tensor& logits, const Tensor& targets,
                         const Tensor& mask, const Tensor& factor, const ops::CrossEntropyTerms& terms);

void check_sinusoid(const Tensor& out);
void check_sinusoid_at(const Tensor& out, const Tensor& position);
// table [H, B], entries [H, N], index [N].
void check_gather_columns(const char* op, const Tensor& table, const Tensor& entries, const Tensor& index);
void check_rotary_table(const Tensor& table, const Tensor& frequency);
void check_rotary(const Tensor& out, const ops::RotaryInputs& in);

void check_ring_append(const Tensor& ring, const Tensor& values);
void check_ring_gather(const Tensor& out, const Tensor& ring);

void check_adamw(const Tensor& w, const Tensor& m, const Tensor& v, const Tensor& gradient, const Tensor& control);
void check_adafactor(const Tensor& w, const Tensor& row, const Tensor& column, const Tensor& mean,
                     const Tensor& gradient, const Tensor& control);
void check_muon_direction(const Tensor& direction, const Tensor& momentum, const Tensor& gradient,
                          const Tensor& control);
void check_muon_update(const Tensor& w, const Tensor& direction, const Tensor& control);
void check_divide_by_norm(const Tensor& x, const Tensor& squared_norm);
void check_moving_average(const Tensor& average, const Tensor& w, const Tensor& control);
void check_step_outcome(const Tensor& outcome, const Tensor& loss_sum, const Tensor& squared_norm);

}  // namespace quire
