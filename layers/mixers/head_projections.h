// The projections around the heads of a mixer: to queries, keys and values, and back to the residual stream.
#pragma once

#include "autograd/functions/basic.h"
#include "layers/mechanism/mechanism.h"
#include "layers/parts/basic.h"

namespace quire {

struct HeadShape {
  int64_t heads;       // H: of queries
  int64_t key_heads;   // Hk: of keys and values
  int64_t size;        // D: of queries and keys
  int64_t value_size;  // Dv

  static HeadShape of(const ModelConfig& model) {
    return {model.heads, model.heads_of_keys(), model.size_of_head(), model.size_of_head()};
  }
};

class HeadProjections {
 public:
  HeadProjections(const Scope& scope, const ModelConfig& model)
      : shape_(HeadShape::of(model)),
        query_(scope.child("query"), model.width, shape_.heads * shape_.size, weights(model)),
        key_(scope.child("key"), model.width, shape_.key_heads * shape_.size, weights(model)),
        value_(scope.child("value"), model.width, shape_.key_heads * shape_.size, weights(model)),
        out_(scope.child("out"), shape_.heads * shape_.size, model.width,
             Initialization(model).residual(shape_.heads * shape_.size)) {}

  // z [R, T, E]: queries [R, T, H, D], keys and values [R, T, Hk, D].
  Variable queries(Tape& tape, const Variable& z) const { return heads_of(tape, query_, z, shape_.heads); }
  Variable keys(Tape& tape, const Variable& z) const { return heads_of(tape, key_, z, shape_.key_heads); }
  Variable values(Tape& tape, const Variable& z) const { return heads_of(tape, value_, z, shape_.key_heads); }
  // [R, T, E] of what the heads have mixed, [R, T, H, D], added to the residual where there is one.
  Variable out(Tape& tape, const Variable& mixed, const Variable& residual) const {
    return out_(tape, reshape(tape, mixed, {mixed.dim(0), mixed.dim(1), shape_.heads * shape_.size}), residual);
  }

 private:
  static Initializer weights(const ModelConfig& model) { return Initialization(model).matrix(model.width); }
  Variable heads_of(Tape& tape, const Linear& projection, const Variable& z, int64_t heads) const {
    return reshape(tape, projection(tape, z), {z.dim(0), z.dim(1), heads, shape_.size});
  }

  HeadShape shape_;
  Linear query_, key_, value_, out_;
};

// The mixer that these projections and some heads make. Heads take (f, q, k, v) to [R, T, H, D]; more arguments of the
// constructor are theirs, behind the scope.
template <typename Heads>
class ProjectedHeads final : public Part {
 public:
  template <typename... Arguments>
  ProjectedHeads(const Scope& scope, const ModelConfig& model, Arguments&&... arguments)
      : projections_(scope, model), heads_(scope, std::forward<Arguments>(arguments)...) {}

  Variable operator()(const Forward& f, const PartInput& input) const override {
    Tape& tape = f.tape;
    const Variable z = input.normalised(tape);
    const Variable mixed =
        heads_(f, projections_.queries(tape, z), projections_.keys(tape, z), projections_.values(tape, z));
    return projections_.out(tape, mixed, input.residual);
  }
  bool adds_residual() const override { return true; }

 private:
  HeadProjections projections_;
  Heads heads_;
};

}  // namespace quire
