// How much of its corpus a run's schedule reads.
#pragma once

#include <nlohmann/json.hpp>
#include <optional>
#include <string>

#include "data/corpus/corpus.h"
#include "trainers/setup/config.h"

namespace quire {

struct ScheduleShare {
  int64_t tokens = 0;                     // targets that the steps of the schedule read
  int64_t split_tokens = 0;               // targets of the split; 0: data.mix, or no corpus
  std::optional<int64_t> documents = {};  // that rows begin, not above those of the split; nothing where no row has one
  int64_t split_documents = 0;
  bool exact = true;  // false: the first documents were dealt out, and the rest is in proportion

  double epochs() const { return static_cast<double>(tokens) / static_cast<double>(split_tokens); }
};

// Of data.split, which `split` is.
ScheduleShare schedule_share(const RunConfig& config, const Split& split);
// Of a corpus that is not at hand, or of data.mix: no more than this.
ScheduleShare schedule_share(const RunConfig& config);

// "the 250 steps read 256000 of 12310442 tokens (2.08 %) and 4 of 136 documents of split train: 0.0208 epochs"
std::string describe(const ScheduleShare& share, const RunConfig& config);
nlohmann::ordered_json to_json(const ScheduleShare& share);

}  // namespace quire
