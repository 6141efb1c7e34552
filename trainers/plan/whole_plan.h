// The plan of a run whose batches are made as they are.
#pragma once

#include <string>
#include <vector>

#include "trainers/setup/model.h"

namespace quire {

// Bytes are those of one rank, one with the largest number of rows.
struct Plan {
  struct Part {
    std::string name;  // "embedding", "blocks" (all of them), "norm", ...
    int64_t parameters = 0;
  };
  std::vector<Part> parts;
  int64_t parameters = 0;
  int64_t vocabulary = 0;
  int64_t rows = 0;  // rows of that rank

  int64_t weights = 0;
  int64_t gradients = 0;
  int64_t moments = 0;
  int64_t average = 0;     // optimizer.ema
  int64_t state = 0;       // carried state
  int64_t host_state = 0;  // carried state in host memory beside a GPU
  int64_t file_state = 0;  // carried state in files
  // largest size of other tensors during a step: activations, their gradients, scratch of kernels
  int64_t activations = 0;
  int64_t free_blocks = 0;  // free blocks that the allocator keeps during a step for tensors of other sizes
  int64_t evaluation = 0;   // size of an evaluation during training, in place of activations: its state and one pass
  int64_t evaluation_blocks =
      0;                  // bytes that an evaluation takes from the system, because no free block of a step fits
  int64_t workspace = 0;  // memory that kernels keep between calls; scratch of a single call counts as activations
  int64_t program = 0;    // code and libraries

  int64_t checkpoint = 0;       // on disk, of all ranks
  int64_t checkpoint_work = 0;  // host memory while one is written

  int64_t persistent() const {
    return weights + gradients + moments + average + state + host_state + free_blocks + program;
  }
  int64_t step() const { return persistent() + activations + workspace; }  // the largest memory during a step
  // Bytes of the whole run on a CPU: free blocks of a step stay with the allocator while an evaluation or a checkpoint
  // takes other memory.
  int64_t total() const;
  // The part of the total that lies on a GPU.
  int64_t on_gpu() const;
};

// Returns the device that a plan is for; `auto` is resolved as this machine would choose.
DeviceKind planned_device(const RunSection& run);

// Makes steps and an evaluation on Device::meta, also with logs as full as a document of the corpus can make them. The
// batches themselves take 56 bytes a token in memory of the host.
Plan make_whole_plan(const RunConfig& config, int64_t ranks, int threads);

}  // namespace quire
