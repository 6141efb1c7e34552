#include "trainers/compare/paired_difference.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <map>
#include <numeric>

#include "core/check.h"
#include "core/random.h"

namespace quire {

namespace {

double mean_of(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0) / static_cast<double>(values.size());
}

// Draws `count` of `count` things with replacement. What is drawn depends on the name, the number of the resample and
// the number of the draw alone, so that all draws of a resample are made in one loop.
class Draws {
 public:
  Draws(std::string_view name, size_t count) : scope_(hash_scope(name)), count_(count), bits_((count + 3) / 4) {}

  void make(int64_t resample) {
    for (size_t i = 0; i < bits_.size(); ++i) {
      bits_[i] = philox({1, 0}, scope_, static_cast<uint32_t>(resample), 0, static_cast<uint32_t>(i));
    }
  }
  size_t operator[](size_t draw) const {
    return static_cast<size_t>((uint64_t{bits_[draw / 4][draw % 4]} * count_) >> 32U);
  }
  // Returns how often each thing was drawn.
  std::vector<int64_t> counts() const {
    std::vector<int64_t> drawn(count_);
    for (size_t i = 0; i < count_; ++i) ++drawn[(*this)[i]];
    return drawn;
  }

 private:
  uint32_t scope_;
  size_t count_;
  std::vector<std::array<uint32_t, 4>> bits_;
};

// Adds the mean over seeds, each counted `counts[seed]` times, to every document of `sums`.
void add_mean(std::vector<double>& sums, const SeedValues& values, const std::vector<int64_t>& counts, double sign) {
  for (size_t seed = 0; seed < values.size(); ++seed) {
    if (counts[seed] == 0) continue;
    const double weight = sign * static_cast<double>(counts[seed]) / static_cast<double>(values.size());
    for (size_t document = 0; document < sums.size(); ++document) sums[document] += weight * values[seed][document];
  }
}

// Gives the differences of documents for drawn seeds; few seeds have few such draws, which are kept.
class DrawnSeeds {
 public:
  DrawnSeeds(const SeedValues& variant, const SeedValues& baseline, bool paired)
      : variant_(variant),
        baseline_(baseline),
        paired_(paired),
        draws_("compare.seeds", variant.size()),
        baseline_draws_("compare.baseline_seeds", baseline.size()) {}

  const std::vector<double>& differences(int64_t resample) {
    draws_.make(resample);
    if (!paired_) baseline_draws_.make(resample);
    std::vector<int64_t> counts = draws_.counts();
    std::vector<int64_t> others = paired_ ? counts : baseline_draws_.counts();
    const std::pair key{std::move(counts), std::move(others)};
    if (const auto found = kept_.find(key); found != kept_.end()) return found->second;
    constexpr size_t kMaxKept = 512;
    if (kept_.size() >= kMaxKept) kept_.clear();
    std::vector<double>& sums = kept_[key];
    sums.resize(variant_.front().size());
    add_mean(sums, variant_, key.first, 1);
    add_mean(sums, baseline_, key.second, -1);
    return sums;
  }

 private:
  const SeedValues& variant_;
  const SeedValues& baseline_;
  bool paired_;
  Draws draws_;
  Draws baseline_draws_;  // used where seeds are not paired
  std::map<std::pair<std::vector<int64_t>, std::vector<int64_t>>, std::vector<double>> kept_;
};

Interval bootstrap_interval(const SeedValues& variant, const SeedValues& baseline, bool paired) {
  const size_t documents = variant.front().size();
  DrawnSeeds seeds(variant, baseline, paired);
  Draws draws("compare.documents", documents);
  std::vector<double> means;
  means.reserve(kResamples);
  for (int64_t resample = 0; resample < kResamples; ++resample) {
    const std::vector<double>& differences = seeds.differences(resample);
    draws.make(resample);
    double sum = 0;
    for (size_t i = 0; i < documents; ++i) sum += differences[draws[i]];
    means.push_back(sum / static_cast<double>(documents));
  }
  std::sort(means.begin(), means.end());
  return {means[kResamples / 40], means[kResamples - kResamples / 40 - 1]};
}

}  // namespace

std::optional<Spread> spread_of(const std::vector<double>& values) {
  if (values.empty()) return std::nullopt;
  Spread spread{mean_of(values), std::nullopt, static_cast<int64_t>(values.size())};
  if (values.size() == 1) return spread;
  double squares = 0;
  for (const double value : values) squares += (value - spread.mean) * (value - spread.mean);
  spread.deviation = std::sqrt(squares / static_cast<double>(values.size() - 1));
  return spread;
}

PairedDifference paired_difference(const SeedValues& variant, const SeedValues& baseline, bool paired) {
  QUIRE_CHECK(!variant.empty() && !baseline.empty() && !variant.front().empty(), "paired difference: no values");
  QUIRE_CHECK(!paired || variant.size() == baseline.size(), "paired difference: {} and {} seeds", variant.size(),
              baseline.size());
  for (const SeedValues* values : {&variant, &baseline}) {
    for (const std::vector<double>& row : *values) {
      QUIRE_CHECK(row.size() == variant.front().size(), "paired difference: {} and {} documents", row.size(),
                  variant.front().size());
    }
  }
  std::vector<double> of_variant, of_baseline;
  for (const std::vector<double>& row : variant) of_variant.push_back(mean_of(row));
  for (const std::vector<double>& row : baseline) of_baseline.push_back(mean_of(row));
  PairedDifference difference;
  difference.mean = mean_of(of_variant) - mean_of(of_baseline);
  if (const double base = mean_of(of_baseline); base != 0) difference.percent = 100 * difference.mean / base;
  if (paired) {
    for (size_t seed = 0; seed < variant.size(); ++seed) {
      difference.by_seed.push_back(of_variant[seed] - of_baseline[seed]);
    }
  }
  if (variant.front().size() >= kMinDocumentsOfInterval) {
    difference.interval = bootstrap_interval(variant, baseline, paired);
  }
  return difference;
}

}  // namespace quire
