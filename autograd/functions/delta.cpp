#include "autograd/functions/delta.h"

#include "kernels/delta_sizes.h"

namespace quire {

DeltaResult delta_rule(Tape& tape, const DeltaVariables& x, const Tensor& segments, double scale) {
  const ops::DeltaInputs in{.q = x.q.value(),
                            .k = x.k.value(),
                            .v = x.v.value(),
                            .g = x.g.value(),
                            .erase = x.erase.value(),
                            .write = x.write.value(),
                            .state = x.state.value(),
                            .segments = segments,
                            .scale = scale};
  const DeltaSizes s(in);
  const Tape::Inputs inputs{&x.q, &x.k, &x.v, &x.g, &x.erase, &x.write, &x.state};
  const Tensor out = Tensor::empty_like(in.v), last = Tensor::empty_like(in.state);
  Tensor chunks;
  if (tape.wants_gradient(inputs)) {
    const Shape shape{ops::delta_chunks(s.cells, s.segments), s.value_heads, s.key, s.value};
    chunks = Tensor::empty(shape, in.state.dtype(), in.state.device());
  }
  ops::delta_rule(out, last, chunks, in);
  const std::vector<Variable> results =
      tape.results("delta_rule", {out, last}, inputs, [x, in, chunks](const std::vector<Tensor>& d) {
        Tensor dout = d[0];
        if (!dout.defined()) {
          dout = Tensor::empty_like(in.v);
          dout.zero();
        }
        const ops::DeltaGradients to{.dq = Tensor::empty_like(in.q),
                                     .dk = Tensor::empty_like(in.k),
                                     .dv = Tensor::empty_like(in.v),
                                     .dg = Tensor::empty_like(in.g),
                                     .derase = in.erase.defined() ? Tensor::empty_like(in.erase) : Tensor(),
                                     .dwrite = Tensor::empty_like(in.write),
                                     .dstate = Tensor::empty_like(in.state)};
        ops::delta_rule_backward(to, dout, d[1], chunks, in);
        const auto add = [](const Variable& to_variable, const Tensor& term) {
          if (to_variable.needs_gradient()) to_variable.gradient()->add(term);
        };
        add(x.q, to.dq);
        add(x.k, to.dk);
        add(x.v, to.dv);
        add(x.g, to.dg);
        add(x.erase, to.derase);
        add(x.write, to.dwrite);
        add(x.state, to.dstate);
      });
  return {results[0], results[1]};
}

}  // namespace quire
