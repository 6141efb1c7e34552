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
  Ranks::Probe probe = {};  // called by every rank when an operation begins; may be empty
  std::optional<std::chrono::milliseconds> deadline = {};  // instead of what the ranks set
  bool work_reports = false;  // work(ranks) asks Ranks::fail() itself, reports what it says and throws nothing
  // After a failure the ranks have this long to end. Then the process ends with the failure's message and exit code.
  std::chrono::milliseconds grace = std::chrono::seconds(20);
};

// Calls work(ranks) on `size` threads and returns when all are done. When it throws on a rank, the others end in the
// next exchange, and the error of that rank is thrown here once: with more than one rank, and inside of an operation,
// its message says which rank, host, step and operation it was.
void run_in_process(int size, const std::function<void(Ranks&)>& work, const InProcessOptions& options = {});

}  // namespace quire
