#include "kernels/cuda/bind.h"

namespace quire::cuda {

void bind_all() {
  bind_elementwise();
  bind_norm();
}

}  // namespace quire::cuda
