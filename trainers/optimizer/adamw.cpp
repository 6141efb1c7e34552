// AdamW: two moments for every weight, updated in a few long ranges of the arena.
#include <algorithm>

#include "kernels/optimizer.h"
#include "trainers/optimizer/optimizer.h"

namespace quire {

namespace {

// A range of parameters with the same settings. It includes alignment gaps, which are zero and stay zero.
struct Range {
  int64_t begin = 0;
  int64_t end = 0;
  double weight_decay = 0;
  double lr_scale = 1;
};

std::vector<Range> ranges_of(const ParameterStore& store, const OptimizerConfig& config) {
  const std::vector<ParameterSettings> settings = parameter_settings(store, config);
  std::vector<Range> ranges;
  for (size_t i = 0; i < settings.size(); ++i) {
    const int64_t begin = store.entries()[i].offset;
    ranges.push_back({begin, 0, settings[i].weight_decay, settings[i].lr_scale});
  }
  std::sort(ranges.begin(), ranges.end(), [](const Range& a, const Range& b) { return a.begin < b.begin; });
  std::vector<Range> merged;
  for (size_t i = 0; i < ranges.size(); ++i) {
    ranges[i].end = i + 1 < ranges.size() ? ranges[i + 1].begin : store.values().numel();
    const bool goes_on = !merged.empty() && merged.back().weight_decay == ranges[i].weight_decay &&
                         merged.back().lr_scale == ranges[i].lr_scale;
    if (goes_on) {
      merged.back().end = ranges[i].end;
    } else {
      merged.push_back(ranges[i]);
    }
  }
  return merged;
}

// A range that lies in the parts of a rank. `kept` is the offset of its moments: those of the parts follow each other.
struct KeptRange {
  Range range;
  int64_t kept = 0;
};
std::vector<KeptRange> kept_ranges(const std::vector<Range>& ranges, const std::vector<ArenaRange>& parts) {
  std::vector<KeptRange> kept;
  int64_t before = 0;  // number of moments of earlier parts
  for (const ArenaRange& part : parts) {
    for (Range range : ranges) {
      range.begin = std::max(range.begin, part.begin);
      range.end = std::min(range.end, part.end);
      if (range.begin < range.end) kept.push_back({range, before + range.begin - part.begin});
    }
    before += part.size();
  }
  return kept;
}

int64_t elements(const std::vector<ArenaRange>& parts) {
  int64_t total = 0;
  for (const ArenaRange& part : parts) total += part.size();
  return total;
}

class AdamW : public Optimizer {
 public:
  AdamW(const ParameterStore& store, const std::vector<ArenaRange>& parts, const OptimizerConfig& config)
      : store_(store),
        parts_(parts),
        config_(config),
        ranges_(kept_ranges(ranges_of(store, config), parts)),
        first_(Tensor::zeros({elements(parts)}, store.values().dtype(), store.values().device())),
        second_(Tensor::zeros({elements(parts)}, store.values().dtype(), store.values().device())) {}

  void update(int64_t update, double learning_rate, const Tensor& control) override {
    for (const auto& [range, kept] : ranges_) {
      const auto part = [&, begin = range.begin, end = range.end](const Tensor& arena) {
        return arena.slice(0, begin, end);
      };
      const auto moments = [&, begin = kept, end = kept + range.end - range.begin](const Tensor& of) {
        return of.slice(0, begin, end);
      };
      ops::adamw(part(store_.values()), moments(first_), moments(second_), part(store_.gradients()), control,
                 {.learning_rate = learning_rate * range.lr_scale,
                  .beta1 = config_.betas[0],
                  .beta2 = config_.betas[1],
                  .eps = config_.eps,
                  .decay = decay_of_step(config_, {range.weight_decay, range.lr_scale}, learning_rate),
                  .step = update});
    }
  }

  std::vector<Moment> moments() const override {
    std::vector<Moment> moments;
    for (const ParameterStore::Entry& entry : store_.entries()) {
      const int64_t end = entry.offset + entry.shape.numel();
      int64_t before = 0;
      for (const ArenaRange& part : parts_) {
        const int64_t from = std::max(part.begin, entry.offset);
        const int64_t to = std::min(part.end, end);
        if (from < to) {
          const int64_t kept = before + from - part.begin;
          add(moments, "m.", entry, {from, to}, first_.slice(0, kept, kept + to - from));
          add(moments, "v.", entry, {from, to}, second_.slice(0, kept, kept + to - from));
        }
        before += part.size();
      }
    }
    return moments;
  }

 private:
  static void add(std::vector<Moment>& to, const char* prefix, const ParameterStore::Entry& entry,
                  const ArenaRange& range, const Tensor& values) {
    Moment moment{prefix + entry.name, entry.shape, range.begin - entry.offset, range.end - entry.offset, values};
    if (moment.whole()) moment.values = values.reshape(entry.shape);
    to.push_back(std::move(moment));
  }

  const ParameterStore& store_;
  std::vector<ArenaRange> parts_;
  OptimizerConfig config_;
  std::vector<KeptRange> ranges_;
  Tensor first_;
  Tensor second_;
};

}  // namespace

std::unique_ptr<Optimizer> make_adamw(const ParameterStore& store, const std::vector<ArenaRange>& parts,
                                      const OptimizerConfig& config) {
  return std::make_unique<AdamW>(store, parts, config);
}

}  // namespace quire
