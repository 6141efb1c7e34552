// Guards against overwriting a file that quire did not make when a command is told where to write.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace quire {

// Looks at an existing regular file; a file that cannot be read counts as not ours.
using IsOurs = std::function<bool(const std::filesystem::path&)>;

// Returns whether the path has a file that may be replaced: a regular file that `is_ours` accepts. Returns false when
// nothing is there. Throws Error(config) that names the path for anything else: a link (which is not followed), a
// folder, a FIFO or device, and a file that is not `what`, as in "a picture of quire needle".
bool is_replaceable(const std::filesystem::path& path, std::string_view what, const IsOurs& is_ours);

// Checks, before work that may take hours, that the folder of the file named by an option ("--svg") exists and is
// writable. Throws Error(disk) that names option, file and folder.
void require_output_folder(const std::filesystem::path& file, std::string_view option);

// Returns the first bytes of a regular file, at most `count`; empty when it cannot be read.
std::string first_bytes(const std::filesystem::path& path, size_t count);

}  // namespace quire
