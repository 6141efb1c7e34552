#include "kernels/delta_sizes.h"

#include "core/check.h"

namespace quire {

namespace {

// Returns the number of features of a gate.
int64_t gate_features(const char* name, const Tensor& gate, const DeltaSizes& s, int64_t features, DType type) {
  QUIRE_CHECK(gate.is_contiguous() && gate.dtype() == type && gate.rank() == 3 && gate.dim(0) == s.cells &&
                  gate.dim(1) == s.value_heads && (gate.dim(2) == 1 || gate.dim(2) == features),
              "delta_rule: {} is {}, not [{}, {}, 1 or {}]", name, gate.shape().to_string(), s.cells, s.value_heads,
              features);
  return gate.dim(2);
}

}  // namespace

DeltaSizes::DeltaSizes(const ops::DeltaInputs& in) {
  QUIRE_CHECK(in.q.rank() == 3 && in.v.rank() == 3 && in.segments.rank() == 2, "delta_rule: q is {}, v is {}",
              in.q.shape().to_string(), in.v.shape().to_string());
  cells = in.q.dim(0), heads = in.q.dim(1), key = in.q.dim(2);
  value_heads = in.v.dim(1), value = in.v.dim(2), segments = in.segments.dim(0);
  group = heads == 0 ? 0 : value_heads / heads;
  const DType type = in.q.dtype(), wide = wide_type(type);
  QUIRE_CHECK(in.k.shape() == in.q.shape() && in.v.dim(0) == cells && heads > 0 && value_heads == group * heads &&
                  in.k.dtype() == type && in.v.dtype() == type,
              "delta_rule: q is {}, k is {}, v is {}", in.q.shape().to_string(), in.k.shape().to_string(),
              in.v.shape().to_string());
  QUIRE_CHECK(in.q.is_contiguous() && in.k.is_contiguous() && in.v.is_contiguous() && in.state.is_contiguous(),
              "delta_rule: an input is not contiguous");
  QUIRE_CHECK(in.segments.dtype() == DType::i32 && in.segments.dim(1) == 2 && in.segments.is_contiguous(),
              "delta_rule: segments are {}, not i32 [S, 2]", in.segments.shape().to_string());
  QUIRE_CHECK(in.state.dtype() == wide && in.state.shape() == (Shape{segments, value_heads, key, value}),
              "delta_rule: the state is {}", in.state.shape().to_string());
  decay = gate_features("g", in.g, *this, key, wide);
  erase = in.erase.defined() ? gate_features("erase", in.erase, *this, key, wide) : 0;
  write = gate_features("write", in.write, *this, value, wide);
}

DecaySizes::DecaySizes(const ops::DeltaDecayInputs& in) {
  QUIRE_CHECK(in.a.rank() == 3 && in.a.is_contiguous(), "delta_decay: a is {}, not [N, HV, F]",
              in.a.shape().to_string());
  cells = in.a.dim(0), heads = in.a.dim(1), features = in.a.dim(2);
  const DType wide = wide_type(in.a.dtype());
  QUIRE_CHECK(in.bias.shape() == (Shape{heads, features}) && in.bias.dtype() == wide && in.bias.is_contiguous(),
              "delta_decay: bias is {}, not [{}, {}]", in.bias.shape().to_string(), heads, features);
  QUIRE_CHECK(!in.log_rate.defined() || (in.log_rate.shape() == Shape{heads} && in.log_rate.dtype() == wide),
              "delta_decay: log_rate is {}, not [{}]", in.log_rate.shape().to_string(), heads);
  QUIRE_CHECK(in.bound < 0 || (in.bound == 0 && in.log_rate.defined()), "delta_decay: bound {}", in.bound);
}

}  // namespace quire
