// Ranks that are threads of one process, on the CPU.
#pragma once

#include <chrono>
#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "core/ranks/ranks.h"

namespace quire {

struct InProcessOptions {
  std::vector<std::string> hosts =
      {};                   // by rank, for ranks that shall seem to be on several; empty: all on "localhost"
  Ranks::Probe probe = {};  // every rank calls it when an operation begins; may be empty
  std::optional<std::chrono::milliseconds> deadline = {};  // overrides the deadline that the ranks set
  bool work_reports = false;  // work(ranks) calls Ranks::fail() itself, reports what it returns and throws nothing
  // The time that ranks have to end after a failure. Then the process ends with the failure's message and exit code.
  std::chrono::milliseconds grace = std::chrono::seconds(20);
};

// Calls work(ranks) on `size` threads and returns when all are done. When it throws on a rank, the others end in the
// next exchange, and the error of that rank is thrown here once. With more than one rank, and inside an operation, the
// message names rank, host, step and operation.
void run_in_process(int size, const std::function<void(Ranks&)>& work, const InProcessOptions& options = {});

}  // namespace quire
