// Computes what a run will need without running it: its steps are made on Device::meta, which only counts bytes.
#pragma once

#include <nlohmann/json.hpp>

#include "core/ranks/ranks.h"
#include "trainers/setup/model.h"

namespace quire {

// Bytes are those of one rank, the one with most rows.
struct Plan {
  struct Part {
    std::string name;  // "embedding", "blocks" (all of them), "norm", ...
    int64_t parameters = 0;
  };
  std::vector<Part> parts;
  int64_t parameters = 0;
  int64_t vocabulary = 0;
  int64_t rows = 0;  // of that rank

  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t moments = 0;
  int64_t average = 0;      // optimizer.ema
  int64_t state = 0;        // what rows carry along their documents
  int64_t host_state = 0;   // the same in memory of the host beside a GPU
  int64_t file_state = 0;   // and in files
  int64_t activations = 0;  // most bytes of other tensors during a step: activations, their gradients, kernels' scratch
  int64_t free_blocks = 0;  // that the allocator holds during a step for tensors of other sizes
  int64_t evaluation = 0;   // what an evaluation during training needs instead of activations: its state and one pass
  int64_t evaluation_blocks = 0;  // what it takes from the system: no block that a step has left fits
  int64_t workspace = 0;  // what kernels keep for themselves; what they take for a call is among the activations
  int64_t program = 0;    // code and libraries

  int64_t checkpoint = 0;       // on disk, of all ranks
  int64_t checkpoint_work = 0;  // in memory of the host while one is written

  int64_t persistent() const {
    return weights + gradients + moments + average + state + host_state + free_blocks + program;
  }
  int64_t step() const { return persistent() + activations + workspace; }  // memory at its most during a step
  // Of the whole run on a CPU: blocks that a step has left stay with the allocator while an evaluation or a checkpoint
  // takes others.
  int64_t total() const;
  // The part of it that lies on a GPU.
  int64_t on_gpu() const;
};

// The device that a plan is for: auto as this machine would choose.
DeviceKind planned_device(const RunSection& run);

// Needs no GPU: run.device: cuda is planned as one would run it, auto as this machine does. Error(config) when there
// are more ranks than rows. Batches of a rank with more than a million tokens are not made: what a row adds is seen
// from two smaller ones, and what a longer subsequence adds from three shorter ones.
Plan make_plan(const RunConfig& config, int64_t ranks, int threads);

// Throws Error(memory) when a run needs more than `available` bytes of the device: how much, for what, and which
// setting would help most. where: "NVIDIA H200", "this machine".
void require_memory(const Plan& plan, const RunConfig& config, int64_t available, const std::string& where);
// The same for the machine that a run has chosen, and which these ranks share.
void require_memory(const RunConfig& config, const Machine& machine, int threads, const Ranks& ranks);

nlohmann::ordered_json to_json(const Plan& plan, const RunConfig& config);

}  // namespace quire
