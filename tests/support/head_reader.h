// Reads the heads of a mixer chunk by chunk with their carried state, from given queries, keys and values.
#pragma once

#include <memory>

#include "layers/parameters/scope.h"
#include "layers/state/state_pool.h"
#include "tests/support/hand_batch.h"
#include "tests/support/test_device.h"

namespace quire::test {

template <typename Heads>
class HeadReader {
 public:
  // make(scope) returns the heads.
  template <typename Make>
  HeadReader(DType dtype, int64_t rows, int64_t longest, const Make& make)
      : scope_(store_, declared_, dtype),
        heads_(make(scope_)),
        pool_(declared_.state, rows, longest, dtype, test_device()),
        rows_(rows) {
    store_.allocate(dtype, test_device(), 1);
  }

  // Reads the next chunk of every row's document, q [R, T, H, D], k [R, T, Hk, D], v [R, T, Hk, Dv].
  Tensor read(const Tensor& q, const Tensor& k, const Tensor& v) {
    const int64_t length = q.dim(1);
    const Batch batch = one_segment_from(position_, rows_, length);
    position_ += length;
    return read(batch, q, k, v);
  }
  Tensor read(const Batch& batch, const Tensor& q, const Tensor& k, const Tensor& v) {
    pool_.begin_step(batch);
    Tape tape(false);
    const StateView view = pool_.view(0, rows_);
    const Forward f{.tape = tape, .batch = batch, .state = view};
    const Tensor out = heads_(f, Variable::constant(q), Variable::constant(k), Variable::constant(v)).value();
    pool_.commit();
    return out;
  }

  StatePool& pool() { return pool_; }

 private:
  ParameterStore store_;
  Declarations declared_;
  Scope scope_;
  Heads heads_;
  StatePool pool_;
  int64_t rows_;
  int64_t position_ = 0;
};

}  // namespace quire::test
