// Describes a corpus, a checkpoint or a run directory as one JSON object; damage is an Error that says where.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace quire {

enum class Inspected { corpus, checkpoint, run };

// Returns the kind of a path. Throws Error(config) for anything else.
Inspected what_is(const std::filesystem::path& path);

// Returns splits with their totals, longest and shortest documents. The checksum and all token ids are verified. Throws
// Error(data).
nlohmann::ordered_json inspect_corpus(const std::filesystem::path& path);

// Returns parameters by part (with every_parameter each of them), moments, average, the carried state and the reading
// position of every row, and the configuration. All files are verified. Throws Error(checkpoint).
nlohmann::ordered_json inspect_checkpoint(const std::filesystem::path& path, bool every_parameter);

// Returns configuration, checkpoints (with the fault of damaged ones), last metrics, and whether the run is running,
// finished or can be resumed.
nlohmann::ordered_json inspect_run(const std::filesystem::path& path);

}  // namespace quire
