#include "tests/support/attention_inputs.h"

#include <tuple>

#include <algorithm>

namespace quire::test {

namespace {

// The first position each query sees. Carried entries reach back between nothing and all of the ring.
Tensor visible_from(const AttentionForm& form, RandomTensors& random) {
  std::vector<int32_t> first;
  for (int64_t r = 0; r < form.rows; ++r) {
    int64_t low = form.slots == 0 ? 0 : -(r == 0 ? form.slots : random.below(form.slots + 1));
    const int64_t padding = form.documents ? random.below(3) + 1 : 0;
    for (int64_t i = 0; i < form.queries; ++i) {
      if (form.documents && i > 0 && random.below(5) == 0) low = i;
      const int64_t from = form.window ? std::max(low, i / form.block * form.block - *form.window) : low;
      first.push_back(static_cast<int32_t>(i >= form.queries - padding ? form.queries + 1 : from));
    }
  }
  return Tensor::from(first, {form.rows, form.queries});
}

// The last position that each query of a bidirectional form sees: before the first one at times.
Tensor visible_to(const AttentionForm& form, RandomTensors& random) {
  std::vector<int32_t> last;
  for (int64_t i = 0; i < form.rows * form.queries; ++i)
    last.push_back(static_cast<int32_t>(random.below(form.queries)));
  return Tensor::from(last, {form.rows, form.queries});
}

}  // namespace

AttentionForm of_sizes(const std::string& name, const std::array<int64_t, 7>& sizes, AttentionForm form) {
  form.name = name;
  std::tie(form.rows, form.queries, form.heads, form.kv_heads, form.size, form.value_size, form.slots) =
      std::tuple_cat(sizes);
  return form;
}

ops::AttentionInputs attention_inputs(const AttentionForm& form, uint32_t seed) {
  RandomTensors random(seed);
  ops::AttentionInputs in;
  in.q = random.normal({form.rows, form.queries, form.heads, form.size});
  in.k = random.normal({form.rows, form.queries, form.kv_heads, form.size});
  in.v = random.normal({form.rows, form.queries, form.kv_heads, form.value_size});
  if (form.slots > 0) {
    in.cache_k = random.normal({form.rows, form.slots, form.kv_heads, form.size});
    in.cache_v = random.normal({form.rows, form.slots, form.kv_heads, form.value_size});
    in.cache_head = random.integers({form.rows}, 0, form.slots);
  }
  in.first_visible = visible_from(form, random);
  if (form.bidirectional) in.last_visible = visible_to(form, random);
  const int64_t reach = form.queries + form.slots;
  const int64_t entries = (form.window ? std::min(reach, *form.window + form.block) : reach) + form.spare_entries;
  if (form.bias) in.bias = random.normal({form.heads, entries});
  if (form.relative) {
    in.r = random.normal({entries, form.heads, form.size});
    in.u = random.normal({form.heads, form.size});
    in.v_bias = random.normal({form.heads, form.size});
  }
  in.scale = form.scale;
  in.attend_self = form.attend_self;
  in.terms_end = form.spare_entries < 0;
  in.dropout = form.dropout;
  in.key = RandomKey::of(seed, 3);
  in.scope = hash_scope("attention");
  in.first_row = 4;
  return in;
}

ops::AttentionGradients gradients_like(const ops::AttentionInputs& in) {
  const auto like = [](const Tensor& tensor) { return tensor.defined() ? Tensor::empty_like(tensor) : Tensor(); };
  return {like(in.q),    like(in.k), like(in.v), like(in.cache_k), like(in.cache_v),
          like(in.bias), like(in.r), like(in.u), like(in.v_bias)};
}

}  // namespace quire::test
