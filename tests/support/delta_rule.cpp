#include "tests/support/delta_rule.h"

#include <algorithm>
#include <utility>

#include "tests/support/compare.h"

namespace quire::test {

namespace {

using Values = std::vector<double>;

// v - k S of one head.
Values errors(const double* key, const double* value, const double* S, int64_t size) {
  Values e(value, value + size);
  for (int64_t n = 0; n < size * size; ++n) e[static_cast<size_t>(n % size)] -= key[n / size] * S[n];
  return e;
}

Tensor like(const Values& values, const Tensor& to) {
  return converted(Tensor::from(values, to.shape()), to.dtype()).to(to.device());
}

// A position, and S before it where it changed.
struct Step {
  int64_t at;
  bool ends_chunk;
  Values S;
};

}  // namespace

DeltaRule delta_rule(Tape& tape, const DeltaRuleInputs& in) {
  const auto result = [&](const Tensor& value) {
    return tape.recording() ? Variable::leaf(value) : Variable::constant(value);
  };
  const Device device = in.q.value().device();
  if (device.kind == DeviceKind::meta) {  // planning only counts
    return {result(Tensor::empty_like(in.q.value())), result(Tensor::empty({1}, DType::f64, device)), in.weights,
            in.gathered, 0};
  }
  const int64_t heads = in.q.dim(2), size = in.q.dim(3), square = size * size, all = heads * square;
  const Values q = values_of(in.q.value()), k = values_of(in.k.value()), v = values_of(in.v.value());
  const Values begin = values_of(in.begin.value());
  Values s = values_of(in.weights), a = values_of(in.gathered), out(q.size()), error{0};
  double power = 0;
  std::vector<Step> steps;
  for (size_t i = 0; i < in.segments.size(); ++i) {
    const Segment& segment = in.segments[i];
    double* const S = s.data() + static_cast<int64_t>(i) * all;
    double* const A = a.data() + static_cast<int64_t>(i) * all;
    if (in.is_empty[i] != 0) std::copy(begin.begin(), begin.end(), S);
    bool changed = true;
    for (int64_t t = segment.begin; t < segment.begin + segment.count; ++t) {
      const int64_t at = in.batch.at(segment.row, t);
      const bool ends = (in.batch.position[static_cast<size_t>(at)] + 1) % in.chunk == 0;
      steps.push_back({at, ends, changed ? Values(S, S + all) : Values()});
      for (int64_t h = 0; h < heads; ++h) {
        const int64_t x = (at * heads + h) * size;
        const Values e = errors(&k[x], &v[x], S + h * square, size);
        for (int64_t r = 0; r < size; ++r) {
          error[0] += e[r] * e[r];
          power += k[x + r] * k[x + r];
        }
        for (int64_t n = 0; n < square; ++n) {
          out[x + n % size] += q[x + n / size] * S[h * square + n];
          A[h * square + n] += k[x + n / size] * e[n % size];
        }
      }
      for (int64_t n = 0; ends && n < all; ++n) S[n] += in.rate * std::exchange(A[n], 0.0);
      changed = ends;
    }
  }
  DeltaRule read{result(like(out, in.q.value())), result(Tensor::from(error, {1}, device)), like(s, in.weights),
                 like(a, in.gathered), power};
  if (!tape.recording()) return read;
  tape.record("delta_rule", {read.out, read.error}, [=](const std::vector<Tensor>& gradients) {
    const Values dout = gradients[0].defined() ? values_of(gradients[0]) : Values(q.size());
    const double derror = gradients[1].defined() ? values_of(gradients[1])[0] : 0;
    Values dq(q.size()), dk(k.size()), dv(v.size()), dbegin(begin.size());
    auto step = steps.rbegin();
    for (size_t i = in.segments.size(); i-- > 0;) {
      Values dS(begin.size()), dA(begin.size());
      for (int64_t t = 0; t < in.segments[i].count; ++t, ++step) {
        const Values& S = std::find_if(step, steps.rend(), [](const Step& other) { return !other.S.empty(); })->S;
        for (size_t n = 0; step->ends_chunk && n < dA.size(); ++n) dA[n] = in.rate * dS[n];
        for (int64_t h = 0; h < heads; ++h) {
          const int64_t x = (step->at * heads + h) * size, m = h * square;
          const Values e = errors(&k[x], &v[x], &S[m], size);
          Values de(e);
          for (double& one : de) one *= 2 * derror;
          for (int64_t n = 0; n < square; ++n) de[n % size] += dA[m + n] * k[x + n / size];
          for (int64_t c = 0; c < size; ++c) dv[x + c] += de[c];
          for (int64_t n = 0; n < square; ++n) {
            const int64_t r = x + n / size, c = n % size;
            dk[r] += dA[m + n] * e[c] - S[m + n] * de[c];
            dq[r] += dout[x + c] * S[m + n];
            dS[m + n] += q[r] * dout[x + c] - k[r] * de[c];
          }
        }
      }
      for (size_t n = 0; in.is_empty[i] != 0 && n < dbegin.size(); ++n) dbegin[n] += dS[n];
    }
    const std::pair<Variable, Values> inputs[] = {{in.q, dq}, {in.k, dk}, {in.v, dv}, {in.begin, dbegin}};
    for (const auto& [input, gradient] : inputs) {
      if (input.needs_gradient()) input.gradient()->add(like(gradient, input.value()));
    }
  });
  return read;
}

}  // namespace quire::test
