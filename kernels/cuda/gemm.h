// Matrix products, and the algorithms chosen for them, which checkpoints keep.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "kernels/gemm.h"

namespace quire::cuda {

// ops::gemm, for products within other operations: these are counted and timed as a whole.
void gemm(const Tensor& c, const Tensor& a, const Tensor& b, const ops::GemmOptions& options);

// The choices as text, one line per size of product that has occurred; empty when there was none.
std::string product_choices();
// Takes over such choices. False when they belong to another GPU or version of cuBLASLt.
bool use_product_choices(const std::string& choices);
// Runs `work`, and chooses for each product in it the fastest of several algorithms when it first occurs. What was
// chosen before is forgotten. Results are not changed by timing. Returns lines for the log. now, for tests: seconds.
std::vector<std::string> time_products(const std::function<void()>& work, const std::function<double()>& now = {});

}  // namespace quire::cuda
