// HDF5 crashes on some damaged files, or reads them for ever. A checksum finds most damage, but not what was damaged
// before the checksum was taken.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>

#include "core/error.h"

namespace quire {

// Runs `read`, which opens the file with Hdf5Reader, in a child process. When that process does not come to an end, or
// not within `seconds` of computing, it is an error of `kind` that names the file. Exceptions of `read` are left to
// the caller, who reads in earnest afterwards. `read` must not log. A child that cannot begin, that a lower limit of
// the user's ends or that something else kills is Error(memory): it says nothing about the file. A child that is still
// there after `patience` and those seconds waits for a lock that another thread of this process held when it was
// copied, which some memory allocators do not give back: it is ended and another one begun, three in all.
void try_in_child(const std::filesystem::path& path, ErrorKind kind, int seconds, const std::function<void()>& read,
                  std::chrono::milliseconds patience = std::chrono::seconds(60));

}  // namespace quire
