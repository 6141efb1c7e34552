// The slots themselves, in one place.
#include "kernels/attention.h"
#include "kernels/cross_entropy.h"
#include "kernels/elementwise.h"
#include "kernels/embedding.h"
#include "kernels/gemm.h"
#include "kernels/norm.h"
#include "kernels/optimizer.h"
#include "kernels/position.h"
#include "kernels/rotary.h"
#include "kernels/state.h"

#define QUIRE_SLOT(name) decltype(name) name(#name)

namespace quire::ops {

QUIRE_SLOT(gemm);
QUIRE_SLOT(copy);
QUIRE_SLOT(convert);
QUIRE_SLOT(add);
QUIRE_SLOT(multiply);
QUIRE_SLOT(scale);
QUIRE_SLOT(add_bias);
QUIRE_SLOT(sum_rows);
QUIRE_SLOT(scale_heads);
QUIRE_SLOT(scale_heads_backward);
QUIRE_SLOT(activation);
QUIRE_SLOT(activation_backward);
QUIRE_SLOT(swiglu);
QUIRE_SLOT(swiglu_backward);
QUIRE_SLOT(dropout);
QUIRE_SLOT(rms_norm);
QUIRE_SLOT(rms_norm_backward);
QUIRE_SLOT(layer_norm);
QUIRE_SLOT(layer_norm_backward);
QUIRE_SLOT(l2_norm);
QUIRE_SLOT(l2_norm_backward);
QUIRE_SLOT(embedding);
QUIRE_SLOT(embedding_backward);
QUIRE_SLOT(cross_entropy);
QUIRE_SLOT(cross_entropy_backward);
QUIRE_SLOT(sum_all);
QUIRE_SLOT(sinusoid);
QUIRE_SLOT(gather_columns);
QUIRE_SLOT(gather_columns_backward);
QUIRE_SLOT(rotary_table);
QUIRE_SLOT(rotary);
QUIRE_SLOT(squared_norm);
QUIRE_SLOT(adamw);
QUIRE_SLOT(adafactor);
QUIRE_SLOT(moving_average);
QUIRE_SLOT(ring_append);
QUIRE_SLOT(ring_gather);
QUIRE_SLOT(attention);
QUIRE_SLOT(attention_backward);

}  // namespace quire::ops
