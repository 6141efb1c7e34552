#include "tests/support/trivial_memories.h"

#include <algorithm>

#include "autograd/functions/basic.h"
#include "layers/mechanism/mechanism_registry.h"
#include "layers/memory/memory.h"
#include "layers/parameters/scope.h"
#include "tests/support/compare.h"

namespace quire::test {

namespace {

// Arithmetic on the host in f64 whatever the model's type is: there is little of it.
class TrivialMemory : public Memory {
 public:
  TrivialMemory(const Scope& scope, int64_t heads) : weight_(scope.param("weight", {heads}, {0.5, 0.25, 0})) {}

  Variable combine(const Forward& f, const MixerTensors& mixer) final {
    const Tensor& v = mixer.v.value();
    // A plan has no values.
    const Variable mean =
        Variable::constant(v.is_meta() ? Tensor::empty_like(mixer.local.value()) : over_segments(f, mixer));
    if (f.write_state && !v.is_meta()) write(f.state, v);
    return add(f.tape, mixer.local, scale_heads(f.tape, mean, weight_));
  }

 private:
  // Mean of what segment s, which is in that row, begins with, [H * D]; without values when that is nothing.
  virtual std::vector<double> mean(const StateView& state, size_t s, int64_t row) const = 0;
  virtual void write(const StateView& state, const Tensor& v) const = 0;

  // Returns the initial state of each segment, at all of its positions: a document that begins inside the row does not
  // use the carried state. Every head reads its value head. [R, T, H, D]
  Tensor over_segments(const Forward& f, const MixerTensors& mixer) const {
    const Shape shape = mixer.local.shape();
    const int64_t heads = shape[2];
    const int64_t size = shape[3];
    const int64_t shared = heads / mixer.v.dim(2);
    std::vector<double> out(static_cast<size_t>(shape.numel()), 0);
    const std::vector<Segment> segments = f.state.segments();
    for (size_t s = 0; s < segments.size(); ++s) {
      const std::vector<double> carried = mean(f.state, s, segments[s].row);
      if (carried.empty()) continue;
      for (int64_t t = segments[s].begin; t < segments[s].begin + segments[s].count; ++t) {
        const int64_t at = f.batch.at(segments[s].row, t);
        for (int64_t h = 0; h < heads; ++h) {
          const auto from = carried.begin() + h / shared * size;
          std::copy(from, from + size, out.begin() + (at * heads + h) * size);
        }
      }
    }
    return converted(Tensor::from(out, shape), mixer.local.value().dtype());
  }

  Parameter weight_;
};

class TrivialRegister final : public TrivialMemory {
 public:
  TrivialRegister(const Scope& scope, const MixerShape& mixer)
      : TrivialMemory(scope, mixer.heads),
        sum_(scope.state_register("sum", {mixer.key_heads, mixer.head_size})),
        count_(scope.state_register("count", {1}, {.dtype = DType::i64})) {}

 private:
  std::vector<double> mean(const StateView& state, size_t s, int64_t) const override {
    if (state.is_empty(count_)[s] != 0) return {};
    const auto place = static_cast<int64_t>(s);
    const auto count = static_cast<double>(state.initial(count_).to_vector<int64_t>()[s]);
    std::vector<double> mean = values_of(state.initial(sum_).select(0, place));
    for (double& value : mean) value /= count;
    return mean;
  }

  void write(const StateView& state, const Tensor& v) const override {
    std::vector<double> sums = values_of(state.initial(sum_));
    std::vector<int64_t> counts = state.initial(count_).to_vector<int64_t>();
    const std::vector<double> values = values_of(v);
    const int64_t entry = v.dim(2) * v.dim(3);
    const std::vector<Segment> segments = state.segments();
    for (size_t s = 0; s < segments.size(); ++s) {
      const auto sum = sums.begin() + static_cast<int64_t>(s) * entry;
      for (int64_t t = segments[s].begin; t < segments[s].begin + segments[s].count; ++t) {
        const auto value = values.begin() + (segments[s].row * v.dim(1) + t) * entry;
        for (int64_t i = 0; i < entry; ++i) sum[i] += value[i];
      }
      counts[s] += segments[s].count;
    }
    const auto leaving = static_cast<int64_t>(segments.size());
    state.put_by_segment(sum_, converted(Tensor::from(sums, {leaving, v.dim(2), v.dim(3)}), v.dtype()));
    state.put_by_segment(count_, Tensor::from(counts, {leaving, 1}));
  }

  RegisterId sum_, count_;
};

struct TrivialLogConfig {
  int64_t size = 8192;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("size", size, {.help = "values that are kept", .min = 1, .at_evaluation = true});
  }
};

class TrivialLog final : public TrivialMemory {
 public:
  TrivialLog(const Scope& scope, int64_t size, const MixerShape& mixer)
      : TrivialMemory(scope, mixer.heads),
        values_(scope.state_log(scope.state_logs("", size), "values", {mixer.key_heads, mixer.head_size})) {}

 private:
  std::vector<double> mean(const StateView& state, size_t s, int64_t row) const override {
    const int64_t readable = state.initial_lengths(values_.group)[s];
    if (readable == 0) return {};
    const Tensor entries = state.gather(values_).select(0, row);  // [M, H, D], newest last
    const int64_t entry = entries.dim(1) * entries.dim(2);
    const std::vector<double> values = values_of(entries);
    std::vector<double> mean(static_cast<size_t>(entry), 0);
    for (int64_t m = entries.dim(0) - readable; m < entries.dim(0); ++m) {
      for (int64_t i = 0; i < entry; ++i) {
        mean[static_cast<size_t>(i)] += values[static_cast<size_t>(m * entry + i)] / static_cast<double>(readable);
      }
    }
    return mean;
  }

  void write(const StateView& state, const Tensor& v) const override { state.append(values_, v); }

  LogId values_;
};

}  // namespace

void register_trivial_memories() {
  if (find_mechanism(Role::memory, "trivial_log") != nullptr) return;
  register_mechanism(
      {.role = Role::memory,
       .kind = "trivial_register",
       .help = "the mean of all values of the document, times a weight",
       .make_memory = [](const Scope& scope, const Place&, const MixerShape& mixer) -> std::unique_ptr<Memory> {
         return std::make_unique<TrivialRegister>(scope, mixer);
       },
       .promises = [](const Place&) { return Promises{}; }});
  register_mechanism(
      {.role = Role::memory,
       .kind = "trivial_log",
       .help = "the mean of the last values of the document, times a weight",
       .options = [] { return ConfigBox(TrivialLogConfig{}); },
       .make_memory = [](const Scope& scope, const Place& place, const MixerShape& mixer) -> std::unique_ptr<Memory> {
         return std::make_unique<TrivialLog>(scope, place.options.get<TrivialLogConfig>().size, mixer);
       },
       .promises = [](const Place&) { return Promises{}; }});
}

}  // namespace quire::test
