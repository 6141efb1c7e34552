// A session on disk: a line of JSON, the bytes of the row, and a checksum of both.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "layers/state/state_save.h"
#include "trainers/serve/choice.h"

namespace quire {

// Properties of the model, with which a stored session must agree.
struct SessionModel {
  std::string fingerprint;  // of weights and configuration
  // Returns the bytes of state with these counts.
  std::function<int64_t(const std::vector<NamedTensor>& counts)> state_bytes;
  int64_t vocabulary = 0;
  int64_t subsequence = 0;
};

// Replaces the file in one atomic step. Throws Error(disk).
void write_session(const std::filesystem::path& file, const Session& session, const SessionModel& model);
// Throws Error(checkpoint) for a file that is damaged or of another model, Error(disk) for one that cannot be read.
std::shared_ptr<const Session> read_session(const std::filesystem::path& file, const SessionModel& model);

}  // namespace quire
