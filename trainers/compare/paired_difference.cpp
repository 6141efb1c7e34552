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

// Draws with replacement: the values depend on the name, the number of the resample and their own number alone.
class Draws {
 public:
  Draws(std::string_view name, int64_t resample)
      : scope_(hash_scope(name)), resample_(static_cast<uint32_t>(resample)) {}

  size_t next(size_t count) {
    if (number_ % 4 == 0) bits_ = philox({1, 0}, scope_, resample_, 0, number_ / 4);
    return static_cast<size_t>((uint64_t{bits_[number_++ % 4]} * count) >> 32U);
  }
  // Returns how often each of `count` was drawn in as many draws.
  std::vector<int64_t> counts(size_t count) {
    std::vector<int64_t> drawn(count);
    for (size_t i = 0; i < count; ++i) ++drawn[next(count)];
    return drawn;
  }

 private:
  uint32_t scope_;
  uint32_t resample_;
  uint32_t number_ = 0;
  std::array<uint32_t, 4> bits_{};
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
      : variant_(variant), baseline_(baseline), paired_(paired) {}

  const std::vector<double>& differences(int64_t resample) {
    std::vector<int64_t> counts = Draws("compare.seeds", resample).counts(variant_.size());
    std::vector<int64_t> others = paired_ ? counts : Draws("compare.baseline_seeds", resample).counts(baseline_.size());
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
  std::map<std::pair<std::vector<int64_t>, std::vector<int64_t>>, std::vector<double>> kept_;
};

Interval bootstrap_interval(const SeedValues& variant, const SeedValues& baseline, bool paired) {
  const size_t documents = variant.front().size();
  DrawnSeeds seeds(variant, baseline, paired);
  std::vector<double> means;
  means.reserve(kResamples);
  for (int64_t resample = 0; resample < kResamples; ++resample) {
    const std::vector<double>& differences = seeds.differences(resample);
    Draws draws("compare.documents", resample);
    double sum = 0;
    for (size_t i = 0; i < documents; ++i) sum += differences[draws.next(documents)];
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
