// Calls of listed attention, each described by what it has of its own: for the table of op cases (listed_cases.cpp) and
// for tests beyond it.
#pragma once

#include "kernels/listed_attention.h"
#include "tests/kernels/op_cases.h"

namespace quire::test {

enum class ListedStep { softmax, landmarks, weights, weights_one };  // weights_one: with softmax_one
enum class ListOf { usual, head, key_head, all_heads };              // usual: all_heads where lists have a number

struct ListedForm {
  struct Queries {
    int64_t rows = 2, queries = 3, heads = 2, kv_heads = 1, size = 4, value_size = 3;
  };
  // own: blocks of the pass in a row, the last one shorter; unread: keys behind those of a stored block.
  struct Blocks {
    int64_t count = 7, length = 4, chosen = 2, own = 0, unread = 0;
  };
  // count: of a row; 0: one for every query. Rows begin within their first list, each elsewhere, after `before` queries
  // that read none.
  struct Lists {
    int64_t count = 0, queries = 4, before = 0;
  };
  std::string name = {};
  ListedStep step = ListedStep::landmarks;
  Queries q = {};
  Blocks blocks = {};
  Lists lists = {};
  ListOf of = ListOf::usual;
  int64_t width = 0;       // weights of a query and head; 0: weights are those of lists
  bool backwards = false;  // the first queries read the last list
  bool shared = true;      // rows choose among the same blocks
  int64_t pairs = 0;       // 0: not rotated
  bool interleaved = false;
  DType stored = DType::f64;  // f64: as the type of the queries
  double spread = 1;          // of the queries
  double mean = 0;            // of queries, and of keys with the other sign

  bool has_lists() const { return lists.count > 0; }
  bool is_weighted() const { return step == ListedStep::weights || step == ListedStep::weights_one; }
  bool has_own_type() const { return stored != DType::f64; }
};
inline void PrintTo(const ListedForm& form, std::ostream* out) {
  *out << form.name;
}

// Returns the case of a form. Stored blocks in no list, and keys that belong to no block, are NaN: no query reads them.
OpCase listed_case(const ListedForm& form);
// Returns the call that the case makes in a type on a device.
ops::ListedAttentionInputs listed_call(const ListedForm& form, DType dtype, Device device);

// Returns out, lse and, without weights, mass.
std::vector<Tensor> attend_listed(const ops::ListedAttentionInputs& in);
// Returns the gradients of q, keys, values, weight, own keys and own values that `asked` names by number; undefined
// where they are constant.
std::vector<Tensor> listed_gradients(const ops::ListedAttentionInputs& in, const std::vector<Tensor>& outputs,
                                     const std::vector<size_t>& asked = {0, 1, 2, 3, 4, 5});

}  // namespace quire::test
