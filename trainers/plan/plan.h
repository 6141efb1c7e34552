// Computes what a run will need without running it: its steps are made on Device::meta, which only counts bytes.
#pragma once

#include <nlohmann/json.hpp>

#include "core/ranks/ranks.h"
#include "trainers/plan/whole_plan.h"

namespace quire {

// Needs no GPU: run.device: cuda is planned as one would run it, auto as this machine does. Error(config) when there
// are more ranks than rows. Batches of a rank with more than a million tokens are not made: what a row adds is seen
// from two smaller ones, and what a longer subsequence adds from three shorter ones.
Plan make_plan(const RunConfig& config, int64_t ranks, int threads);

// Throws Error(memory) when a run needs more than `available` bytes of the device; the message says how much, for what,
// and which setting would help most. where: "NVIDIA H200", "this machine".
void require_memory(const Plan& plan, const RunConfig& config, int64_t available, const std::string& where);
// Does the same for the machine that a run has chosen, and which these ranks share.
void require_memory(const RunConfig& config, const Machine& machine, int threads, const Ranks& ranks);

nlohmann::ordered_json to_json(const Plan& plan, const RunConfig& config);

}  // namespace quire
