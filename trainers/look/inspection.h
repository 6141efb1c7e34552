// What a corpus, a checkpoint or a run directory holds, as one JSON object each; damage is an Error that says where.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>

namespace quire {

enum class Inspected { corpus, checkpoint, run };

// Error(config) for anything else.
Inspected what_is(const std::filesystem::path& path);

// Splits with their totals, longest and shortest documents. The checksum and all token ids are verified. Error(data).
nlohmann::ordered_json inspect_corpus(const std::filesystem::path& path);

// Parameters by part (each with every_parameter), moments, average, what every row carries and where it reads,
// configuration. All files are verified. Error(checkpoint).
nlohmann::ordered_json inspect_checkpoint(const std::filesystem::path& path, bool every_parameter);

// Configuration, checkpoints (damaged ones with what is wrong), last metrics, and whether the run is running, finished
// or can go on.
nlohmann::ordered_json inspect_run(const std::filesystem::path& path);

}  // namespace quire
