// Rings of carried entries.
#include <algorithm>

#include "kernels/state.h"
#include "tests/kernels/op_cases.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

Tensor row_of(const std::vector<int32_t>& values) {
  return Tensor::from(values, {static_cast<int64_t>(values.size())});
}

struct Ring {
  int64_t slots;
  int64_t tokens;
  int64_t entry;
  std::vector<int32_t> head, begin, count;
  int64_t stride = 1;
};

void add_append(std::vector<OpCase>& cases, RandomTensors& random, const std::string& name, const Ring& ring) {
  const auto rows = static_cast<int64_t>(ring.head.size());
  add_in_place(
      cases, "ring_append", name,
      {random.normal({rows, ring.slots, ring.entry}), random.normal({rows, ring.tokens, ring.entry}), row_of(ring.head),
       row_of(ring.begin), row_of(ring.count)},
      0, [stride = ring.stride](const Tensors& in) { ops::ring_append(in[0], in[1], in[2], in[3], in[4], stride); },
      [ring, rows](const Tensors& in) {
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t j = 0; j < at(in[4], r); ++j) {
            const int64_t slot = (at(in[2], r) + j) % ring.slots;
            for (int64_t n = 0; n < ring.entry; ++n) {
              values(in[0])[(r * ring.slots + slot) * ring.entry + n] =
                  values(in[1])[(r * ring.tokens + at(in[3], r) + j * ring.stride) * ring.entry + n];
            }
          }
        }
      });
}

void add_gather(std::vector<OpCase>& cases, RandomTensors& random, int64_t slots, int64_t count, int64_t entry,
                const std::vector<int32_t>& head, const std::vector<int32_t>& length) {
  const auto rows = static_cast<int64_t>(head.size());
  add_operation(
      cases, "ring_gather", std::to_string(slots) + "x" + std::to_string(count) + "x" + std::to_string(entry),
      {random.normal({rows, slots, entry}), row_of(head), row_of(length), random.normal({rows, count, entry})}, 0,
      [](const Tensors& in) {
        ops::ring_gather(in[3], in[0], in[1], in[2]);
        return Tensors{in[3]};
      },
      [=](const Tensors& in) {
        const Tensor out = like(in[3]);
        for (int64_t r = 0; r < rows; ++r) {
          for (int64_t age = 1; age <= std::min<int64_t>(at(in[2], r), count); ++age) {
            const int64_t slot = (at(in[1], r) - age + slots) % slots;
            for (int64_t n = 0; n < entry; ++n) {
              values(out)[(r * count + count - age) * entry + n] = values(in[0])[(r * slots + slot) * entry + n];
            }
          }
        }
        return Tensors{out};
      });
}

// Memories keep their entries in other types, too: small whole numbers, exact in each.
void add_stored(std::vector<OpCase>& cases, RandomTensors& random, DType type) {
  const auto numbers = [&](const Shape& shape) { return recast(random.integers(shape, -16, 17), DType::f64); };
  const auto row = [](std::vector<OpCase>& all, const char* op) -> OpCase& {
    return *std::find_if(all.rbegin(), all.rend(), [op](const OpCase& c) { return c.op == op; });
  };
  std::vector<OpCase> plain;
  add_append(plain, random, "stored_" + std::string(name_of(type)), {7, 5, 3, {2, 5, 4}, {0, 0, 2}, {0, 5, 3}});
  add_gather(plain, random, 7, 4, 3, {0, 2, 5}, {4, 4, 0});
  for (const char* op : {"ring_append", "ring_gather"}) {
    OpCase stored = row(plain, op);
    stored.variant = "stored_" + std::string(name_of(type));
    const auto is_real = [](const Tensor& tensor) { return tensor.dtype() != DType::i32; };
    for (Tensor& input : stored.inputs) input = is_real(input) ? numbers(input.shape()) : input;
    stored.kernel = [kernel = stored.kernel, type, is_real](const Tensors& in) {
      Tensors recasted;
      for (const Tensor& input : in) recasted.push_back(is_real(input) ? recast(input, type) : input);
      return Tensors{recast(kernel(recasted)[0], in[0].dtype())};
    };
    cases.push_back(stored);
  }
}

}  // namespace

void add_ring_cases(std::vector<OpCase>& cases) {
  RandomTensors random(6);
  add_append(cases, random, "one", {1, 1, 1, {0}, {0}, {1}});
  // A row that writes nothing, one that wraps, one that ends at the end, one that fills the ring.
  add_append(cases, random, "wraps", {7, 5, 3, {2, 5, 4, 6, 3}, {0, 0, 2, 1, 0}, {0, 5, 3, 2, 4}});
  add_append(cases, random, "full", {5, 5, 2, {0, 3}, {0, 0}, {5, 5}});
  add_append(cases, random, "every_third", {7, 11, 3, {2, 5, 4, 6}, {0, 2, 1, 10}, {0, 3, 4, 1}, 3});
  add_gather(cases, random, 1, 1, 1, {0}, {1});
  add_gather(cases, random, 7, 4, 3, {0, 2, 5, 6}, {4, 4, 0, 3});
  add_gather(cases, random, 5, 5, 2, {3, 0}, {5, 2});
  add_gather(cases, random, 6, 2, 2, {1, 4}, {4, 1});  // more entries than requested: the newest are read
  for (const DType type : {DType::bf16, DType::i8, DType::f8, DType::i32}) add_stored(cases, random, type);
}

}  // namespace quire::test
