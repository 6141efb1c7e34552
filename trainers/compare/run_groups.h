// Puts runs together whose configurations differ in the seed alone, and lists what differs between the groups.
#pragma once

#include <string>
#include <vector>

#include "trainers/compare/compared_run.h"

namespace quire {

struct RunGroup {
  std::string letter;        // A, B, ...
  std::string name;          // run.name where it is the group's own, else what the names of its folders begin with
  std::vector<size_t> runs;  // numbers of runs, in the order given
};

// Returns groups in the order of their first runs. Keys that change no result do not count: names, paths, threads, and
// what is evaluated, logged and kept; nor does the seed. Runs of corpora with another checksum are other groups.
std::vector<RunGroup> group_runs(const std::vector<ComparedRun>& runs);

// Returns whether runs with these settings, which begin with the same weights, would be one group.
bool are_one_group(const RunConfig& a, const RunConfig& b);

// Throws Error(config) that names a key unless the run was trained with settings that give the results of `config`,
// which begins with the weights of `origins`: the same settings, and corpora of the same file names.
void require_same_results(const ComparedRun& kept, const RunConfig& config, const std::vector<RunConfig>& origins);

struct DifferingKey {
  std::string key;                  // dotted
  std::vector<std::string> values;  // one per group, as YAML; empty where a group lacks the key
};
std::vector<DifferingKey> differing_keys(const std::vector<ComparedRun>& runs, const std::vector<RunGroup>& groups);

// Returns the seeds of a group's runs, in their order.
std::vector<int64_t> seeds_of(const RunGroup& group, const std::vector<ComparedRun>& runs);

}  // namespace quire
