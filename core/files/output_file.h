// A file that a command was told to write may lie on top of something that quire did not make.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

namespace quire {

// Looks at an existing regular file; errors of reading it count as no.
using IsOurs = std::function<bool(const std::filesystem::path&)>;

// Whether something is at the path that may be replaced: a regular file that `is_ours` accepts. False when nothing is
// there. Anything else is Error(config) that names it: a link (which is not followed), a folder, a FIFO or device, and
// a file that is not `what`, as in "a picture of quire needle".
bool is_replaceable(const std::filesystem::path& path, std::string_view what, const IsOurs& is_ours);

// The folder of a file that an option names ("--svg") exists and may be written to, before work that may take hours.
// Error(disk) that names option, file and folder.
void require_output_folder(const std::filesystem::path& file, std::string_view option);

// The first bytes of a regular file, as many as there are up to `count`; empty when it cannot be read.
std::string first_bytes(const std::filesystem::path& path, size_t count);

}  // namespace quire
