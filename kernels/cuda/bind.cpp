#include "kernels/cuda/bind.h"

namespace quire::cuda {

void bind_all() {
  bind_attention_backward();
  bind_attention_forward();
  bind_elementwise();
}

}  // namespace quire::cuda
