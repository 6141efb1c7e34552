// A fast-weight memory (Schlag et al. 2021, "Linear Transformers Are Secretly Fast Weight Programmers"): a matrix S
// [D, D] per head learns with the delta rule while a document is read (tests/support/delta_rule.h), and what queries
// read from it is added to local attention. A document begins with a learned S; the rate is divided by a moving average
// of the keys' squared length; the mean squared error of what S recalls is a loss.
#include <algorithm>

#include "autograd/functions/basic.h"
#include "layers/auxiliary_loss.h"
#include "layers/host_values.h"
#include "layers/memory/memory.h"
#include "layers/model_config.h"
#include "layers/scope.h"
#include "tests/support/compare.h"
#include "tests/support/delta_rule.h"
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
  double value() const {
    if (power_->value.device().kind == DeviceKind::meta) return 1;  // planning only counts
    return values_on_host(power_->value)[0];
  }
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
  Tensor sums_;  // of squared lengths, and how many
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
    const DeltaRuleInputs inputs{.q = in.q,
                                 .k = in.k,
                                 .v = in.v,
                                 .begin = begin_,
                                 .weights = f.state.initial(weights_),
                                 .gathered = f.state.initial(gathered_),
                                 .is_empty = f.state.is_empty(weights_),
                                 .segments = f.state.segments(),
                                 .batch = f.batch,
                                 .chunk = config_.chunk,
                                 .rate = config_.rate / std::max(power_.value(), 1e-3)};
    const DeltaRule read = delta_rule(f.tape, inputs);
    if (f.write_state) {
      f.state.put_by_segment(weights_, read.weights);
      f.state.put_by_segment(gathered_, read.gathered);
      if (f.training) power_.add(read.key_power, static_cast<double>(count_tokens(f.batch)));
    }
    return add_loss(f, error_, read.error, add(f.tape, read.out, in.local));
  }

 private:
  static Shape square(const MixerShape& mixer) { return {mixer.heads, mixer.head_size, mixer.head_size}; }

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
