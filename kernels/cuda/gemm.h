// The algorithms chosen for matrix products, which checkpoints keep.
#pragma once

#include <string>

namespace quire::cuda {

// The choices as text, one line per size of product that has occurred; empty when there was none.
std::string product_choices();
// Takes over such choices. False when they belong to another GPU or version of cuBLASLt.
bool use_product_choices(const std::string& choices);

}  // namespace quire::cuda
