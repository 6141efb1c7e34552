// Random attention inputs of a described form.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "kernels/attention.h"
#include "tests/support/random_tensor.h"

namespace quire::test {

struct AttentionForm {
  std::string name = {};
  int64_t rows = 2;
  int64_t queries = 5;
  int64_t heads = 2;
  int64_t kv_heads = 2;
  int64_t size = 3;
  int64_t value_size = 3;
  int64_t slots = 0;                   // slots of the ring; heads of rows lie anywhere in it
  std::optional<int64_t> window = {};  // distances 1..window
  int64_t block = 1;                   // the window begins before the query's block of this many
  bool attend_self = true;
  bool documents = false;     // every row holds several documents and ends in padding
  bool bias = false;          // T5
  bool relative = false;      // Transformer-XL
  int64_t spare_entries = 0;  // table entries beyond the largest distance; below zero the tables end before it
  double dropout = 0;
  double scale = 0.6;
  bool bidirectional = false;  // queries see later keys too, up to some random one
};

// A form with all of its sizes: rows, queries, heads, key heads, sizes of keys and of values, slots.
AttentionForm of_sizes(const std::string& name, const std::array<int64_t, 7>& sizes, AttentionForm form = {});

// Tensors in f64.
ops::AttentionInputs attention_inputs(const AttentionForm& form, uint32_t seed);

// Room for the gradients of all inputs that are given.
ops::AttentionGradients gradients_like(const ops::AttentionInputs& in);

}  // namespace quire::test
