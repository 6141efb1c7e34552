// meta.json of a checkpoint: the progress of the run.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "data/batches/cursor.h"

namespace quire {

class CheckpointReader;

struct CheckpointMeta {
  int64_t step = 0;
  int64_t tokens = 0;
  int64_t rows = 0;
  int64_t ranks = 1;
  int64_t skipped = 0;
  int64_t skips_in_a_row = 0;
  int64_t logged = 0;  // the last step with a line of metrics
  Cursor cursor = {};
  std::string corpus = {};            // the checksum of data.corpus
  std::vector<std::string> mix = {};  // the checksums of data.mix
  std::string backend = {};
  std::string dtype = {};
  std::string attention = {};  // choices between kernels of attention, as text; empty without any

  nlohmann::json to_json() const;
  // Throws Error(checkpoint), beginning with `where`, unless every value is present and of its type, and the step is
  // that of the checkpoint.
  static CheckpointMeta from_json(const nlohmann::json& json, int64_t step, const std::string& where);
};

// Throws Error(checkpoint), beginning with `where`, for text that is no meta.json, or a wrong one of this version.
// Other versions pass here: they may be whole, and checkpoint_meta() names the version.
void require_sound_meta(const nlohmann::json& json, int64_t step, const std::string& where);

// Throws Error(checkpoint) when the checkpoint has another version.
CheckpointMeta checkpoint_meta(const CheckpointReader& reader);

}  // namespace quire
