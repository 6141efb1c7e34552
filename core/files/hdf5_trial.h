// HDF5 crashes on some damaged files, or reads them for ever. A checksum finds most damage, but not what was damaged
// before the checksum was taken.
#pragma once

#include <filesystem>
#include <functional>

#include "core/error.h"

namespace quire {

// Runs `read`, which opens the file with Hdf5Reader, in a child process. When that process does not come to an end, or
// not within `seconds` of computing, it is an error of `kind` that names the file. Exceptions of `read` are left to
// the caller, who reads in earnest afterwards. `read` must not log.
void try_in_child(const std::filesystem::path& path, ErrorKind kind, int seconds, const std::function<void()>& read);

}  // namespace quire
