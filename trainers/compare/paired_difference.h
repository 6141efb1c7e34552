// The difference between two sets of evaluations of the same documents, with a bootstrap interval.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

namespace quire {

// Mean and standard deviation over seeds (divided by their number less one); no deviation for a single value.
struct Spread {
  double mean = 0;
  std::optional<double> deviation;
  int64_t count = 0;
};
// Returns nothing for no values.
std::optional<Spread> spread_of(const std::vector<double>& values);

// A figure of every document for every seed: [seed][document], with the same documents everywhere.
using SeedValues = std::vector<std::vector<double>>;

struct Interval {
  double low = 0;
  double high = 0;
};

struct PairedDifference {
  double mean = 0;                // over documents, of the mean over seeds
  std::optional<double> percent;  // of the baseline's mean; nothing where that is 0
  std::optional<Interval> interval;
  std::vector<double> by_seed;  // mean over documents of each seed, where seeds are paired
};

inline constexpr int64_t kResamples = 10000;
// With fewer documents the resampled means take too few different values for an interval of 95 %.
inline constexpr size_t kMinDocumentsOfInterval = 6;

// Returns the variant's figures less the baseline's. `paired`: row s of both has the same seed; seeds are then drawn
// for both at once, otherwise for each by itself.
//
// The interval has the percentiles 2.5 and 97.5 of kResamples means. Every resample draws documents and seeds with
// replacement, as many as there are (Efron and Tibshirani 1993). Draw j of resample b among n is bits * n / 2^32, where
// bits is value j % 4 of philox({1, 0}, hash_scope(name), b, 0, j / 4), and the name is "compare.documents",
// "compare.seeds" or, for the baseline's seeds where they are drawn by themselves, "compare.baseline_seeds".
PairedDifference paired_difference(const SeedValues& variant, const SeedValues& baseline, bool paired);

}  // namespace quire
