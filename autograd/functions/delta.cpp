#include "autograd/functions/delta.h"

#include "autograd/functions/terms.h"
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
        const Tensor dout = d[0].defined() ? d[0] : Tensor::zeros(in.v.shape(), in.v.dtype(), in.v.device());
        const ops::DeltaGradients to{.dq = Tensor::empty_like(in.q),
                                     .dk = Tensor::empty_like(in.k),
                                     .dv = Tensor::empty_like(in.v),
                                     .dg = Tensor::empty_like(in.g),
                                     .derase = in.erase.defined() ? Tensor::empty_like(in.erase) : Tensor(),
                                     .dwrite = Tensor::empty_like(in.write),
                                     .dstate = Tensor::empty_like(in.state)};
        ops::delta_rule_backward(to, dout, d[1], chunks, in);
        add_to_gradient(x.q, to.dq);
        add_to_gradient(x.k, to.dk);
        add_to_gradient(x.v, to.dv);
        add_to_gradient(x.g, to.dg);
        add_to_gradient(x.erase, to.derase);
        add_to_gradient(x.write, to.dwrite);
        add_to_gradient(x.state, to.dstate);
      });
  return {results[0], results[1]};
}

Variable delta_decay(Tape& tape, const DecayVariables& x, double bound) {
  const ops::DeltaDecayInputs in{
      .a = x.a.value(), .log_rate = x.log_rate.value(), .bias = x.bias.value(), .bound = bound};
  const DecaySizes s(in);
  const DType wide = wide_type(in.a.dtype());
  const Tensor g = Tensor::empty(in.a.shape(), wide, in.a.device());
  ops::delta_decay(g, in);
  return tape.result("delta_decay", g, {&x.a, &x.log_rate, &x.bias}, [x, in, g](const Tensor& dg) {
    const ops::DeltaDecayGradients to{.da = Tensor::empty_like(in.a),
                                      .dlog_rate = in.log_rate.defined() ? Tensor::empty_like(in.log_rate) : Tensor(),
                                      .dbias = Tensor::empty_like(in.bias)};
    ops::delta_decay_backward(to, dg, g, in);
    add_to_gradient(x.a, to.da);
    add_to_gradient(x.log_rate, to.dlog_rate);
    add_to_gradient(x.bias, to.dbias);
  });
}

}  // namespace quire
