// JSON of model folders: small, and with every key once. Other readers take the last of two equal keys, so a file with
// both means different things to different programs.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

namespace quire {

// Reads a file of at most `max_bytes`. Throws Error(data) for one that is larger, that is not JSON, or that has a key
// twice in one object.
nlohmann::json read_strict_json(const std::filesystem::path& file, int64_t max_bytes);

}  // namespace quire
