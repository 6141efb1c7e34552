// Computes how much of its corpus a run's schedule reads.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "data/corpus/corpus.h"
#include "trainers/setup/config.h"

namespace quire {

struct ScheduleShare {
  int64_t tokens = 0;        // targets that the steps of the schedule read
  int64_t split_tokens = 0;  // targets of the split; 0 with data.mix, or without a corpus
  // documents that rows begin, at most those of the split; nothing where no row has one
  std::optional<int64_t> documents = {};
  int64_t split_documents = 0;
  bool exact = true;  // false: only the first documents were dealt, and the rest is extrapolated

  double epochs() const { return static_cast<double>(tokens) / static_cast<double>(split_tokens); }
};

// For data.split, which `split` is.
ScheduleShare schedule_share(const RunConfig& config, const Split& split);
// For a corpus that is not present, or for data.mix: only the number of tokens.
ScheduleShare schedule_share(const RunConfig& config);

// Returns "the 250 steps read 256000 of 12310442 tokens (2.08 %) and 4 of 136 documents of split train: 0.0208 epochs".
std::string describe(const ScheduleShare& share, const RunConfig& config);
nlohmann::ordered_json to_json(const ScheduleShare& share);

}  // namespace quire
