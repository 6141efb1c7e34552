// A fast-weight memory (Schlag et al. 2021, "Linear Transformers Are Secretly Fast Weight Programmers"): a matrix S
// [D, D] per head learns with the delta rule while a document is read, and what queries read from it is added to local
// attention. A document begins with a learned S; the rate is divided by a moving average
// of the keys' squared length; the mean squared error of what S recalls is a loss.
#include <algorithm>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/rows.h"
#include "autograd/recompute.h"
#include "layers/config/model_config.h"
#include "layers/memory/memory.h"
#include "layers/parameters/scope.h"
#include "layers/pass/auxiliary_loss.h"
#include "layers/pass/host_values.h"
#include "tests/support/test_mechanisms.h"

namespace quire::test {

namespace {

struct FastWeightConfig {
  int64_t chunk = 16;
  double rate = 0.5, decay = 0.9, weight = 0.1;
  template <class Visitor>
  void fields(Visitor& v) {
    v.field("chunk", chunk, {.help = "positions between two updates", .unit = "tokens", .min = 1});
    v.field("rate", rate, {.help = "share of an error that a chunk corrects", .min = 0, .max = 2});
    v.field("decay", decay, {.help = "of the moving average of the keys' power", .min = 0, .max = 1});
    v.field("weight", weight, {.help = "of the mean squared error in the loss", .min = 0, .resumable = true});
  }
};

class KeyPower final : public Learner {
 public:
  KeyPower(const Scope& scope, double decay)
      : name_(scope.path()), decay_(decay), power_(scope.buffer("power", {1}, Initializer::constant(1))) {}
  double value() const { return values_on_host(power_->value)[0]; }
  void add(double sum, double count) {
    if (!sums_.defined()) return;  // a pass outside a step
    sums_.data<double>()[0] += sum;
    sums_.data<double>()[1] += count;
  }
  void begin_step(const LearnerStep&) override { sums_ = Tensor::zeros({2}, DType::f64, kCpu); }
  std::vector<Tensor> sums() const override { return {sums_}; }
  void update(const Tensor& control) override {
    const std::vector<double> sums = sums_.to_vector<double>();
    if (control.to_vector<double>()[1] == 0 || sums[1] == 0) return;
    const double next = decay_ * value() + (1 - decay_) * sums[0] / sums[1];
    power_->value.copy_from(tensor_of({next}, {1}, power_->value.dtype(), power_->value.device()));
  }
  void report(Telemetry& telemetry) const override { telemetry.emplace_back(name_ + ".power", value()); }

 private:
  std::string name_;
  double decay_;
  ParameterStore::Buffer* power_;
  Tensor sums_;  // sums of squared lengths, and their number
};

class FastWeight final : public Memory {
 public:
  FastWeight(const Scope& scope, const FastWeightConfig& config, const MixerShape& mixer)
      : config_(config),
        begin_(scope.param_without_decay("begin", square(mixer), Initializer::normal(0.3))),
        weights_(scope.state_register("weights", square(mixer), {.wide = true})),
        gathered_(scope.state_register("gathered", square(mixer), {.wide = true})),
        power_(scope, config.decay),
        error_(scope.loss_term("recall_error", config.weight, count_tokens)) {
    scope.learner(power_);
  }

  Variable combine(const Forward& f, const MixerTensors& in) override {
    const double rate = config_.rate / std::max(power_.value(), 1e-3);
    // All chunks form one record, however many there are.
    const std::vector<Variable> read = recompute(
        f.tape, {in.q, in.k, in.v},
        [this, f, rate](Tape& tape, const std::vector<Variable>& x, bool) { return delta_rule(tape, f, x, rate); });
    if (f.write_state) {
      f.state.put_by_segment(weights_, read[2].value());
      f.state.put_by_segment(gathered_, read[3].value());
      const auto count = static_cast<double>(count_tokens(f.batch));
      if (f.training) power_.add(values_on_host(read[4].value())[0], count);
    }
    return add_loss(f, error_, read[1], add(f.tape, read[0], in.local));
  }

 private:
  static Shape square(const MixerShape& mixer) { return {mixer.heads, mixer.head_size, mixer.head_size}; }

  // x: q, k, v [R, T, H, D]. Positions of a chunk read S as it was before the chunk, out = q S, and gather A = sum of
  // k^T (v - k S); behind the chunk S grows by rate * A. Returns out, the sum of |v - k S|^2, S and A that each segment
  // leaves, and the sum of |k|^2.
  std::vector<Variable> delta_rule(Tape& t, const Forward& f, const std::vector<Variable>& x, double rate) const {
    const DType type = x[0].value().dtype(), wide = wide_type(type);
    const Device device = x[0].value().device();
    const int64_t cells = f.batch.rows * f.batch.length, heads = x[0].dim(2), size = x[0].dim(3);
    const auto zeros = [&](const Shape& shape) { return Variable::constant(Tensor::zeros(shape, wide, device)); };
    std::vector<Variable> by_head;  // [H, R T, D]
    for (const Variable& one : x) {
      by_head.push_back(permute(t, reshape(t, convert(t, one, wide), {cells, heads, size}), {1, 0, 2}));
    }
    const std::vector<Segment> segments = f.state.segments();
    const std::vector<uint8_t> is_empty = f.state.is_empty(weights_);
    const Tensor weights = f.state.initial(weights_), gathered = f.state.initial(gathered_);
    std::vector<Variable> out, errors{zeros({heads, 0, size})}, keys = errors, left, unfinished;
    int64_t done = 0;
    const auto skip_padding = [&](int64_t to) {
      if (to > done) out.push_back(zeros({heads, to - done, size}));
      done = to;
    };
    for (size_t i = 0; i < segments.size(); ++i) {
      const auto carried = [i](const Tensor& all) {
        return Variable::constant(all.select(0, static_cast<int64_t>(i)));
      };
      Variable S = is_empty[i] != 0 ? convert(t, begin_, wide) : carried(weights), A = carried(gathered);
      skip_padding(f.batch.at(segments[i].row, segments[i].begin));
      for (const int64_t end = done + segments[i].count; done < end;) {
        const int64_t position = f.batch.position[static_cast<size_t>(done)];
        const int64_t next = std::min(end, done + config_.chunk - position % config_.chunk);
        const auto part = [&](size_t which) { return slice(t, by_head[which], 1, done, next); };
        keys.push_back(part(1));
        errors.push_back(subtract(t, part(2), matmul(t, keys.back(), S)));
        out.push_back(matmul(t, part(0), S));
        A = add(t, A, matmul(t, keys.back(), errors.back(), {.transpose_a = true}));
        if ((position + next - done) % config_.chunk == 0) {
          S = add(t, S, scale(t, A, rate));
          A = zeros(A.shape());
        }
        done = next;
      }
      left.push_back(S);
      unfinished.push_back(A);
    }
    skip_padding(cells);
    const auto sum_of_squares = [&](const std::vector<Variable>& parts) {
      const Variable all = concatenate(t, parts, 1);
      return total(t, multiply(t, all, all));
    };
    const auto by_segment = [&](const std::vector<Variable>& parts) {
      const Shape shape{static_cast<int64_t>(parts.size()), heads, size, size};
      return parts.empty() ? zeros(shape) : reshape(t, concatenate(t, parts, 0), shape);
    };
    const Variable by_cell = permute(t, concatenate(t, out, 1), {1, 0, 2});
    return {convert(t, reshape(t, by_cell, x[0].shape()), type), sum_of_squares(errors), by_segment(left),
            by_segment(unfinished), sum_of_squares(keys)};
  }

  FastWeightConfig config_;
  Parameter begin_;
  RegisterId weights_, gathered_;  // S, and what the unfinished chunk has gathered
  KeyPower power_;
  LossTermId error_;
};

constexpr CompositionRule kRules[] = {{"kind", "fast_weight has a matrix for every head; leave model.key_heads out",
                                       [](const Place& p) { return p.model.heads_of_keys() != p.model.heads; }}};

}  // namespace

Mechanism fast_weight_memory() {
  return {
      .role = Role::memory,
      .kind = "fast_weight",
      .help = "a matrix per head that learns while it reads",
      .options = [] { return ConfigBox(FastWeightConfig{}); },
      .rules = kRules,
      .make_memory = [](const Scope& scope, const Place& place, const MixerShape& mixer) -> std::unique_ptr<Memory> {
        return std::make_unique<FastWeight>(scope, place.options.get<FastWeightConfig>(), mixer);
      },
      .grain = [](const Place& place) { return place.options.get<FastWeightConfig>().chunk; },
      .reach = [](const Place&, const TargetPlace& target) { return target.position; }};
}

}  // namespace quire::test
