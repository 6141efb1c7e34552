// What checkpoints keep of the products.
#pragma once

#include <string>

namespace quire::cuda {

// One line per problem that was met; empty when there was none.
std::string product_choices();
// False when they belong to another GPU or version of cuBLASLt.
bool use_product_choices(const std::string& choices);

}  // namespace quire::cuda
