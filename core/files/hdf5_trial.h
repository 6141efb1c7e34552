// HDF5 crashes on some damaged files, or reads them for ever. A checksum finds most damage, but not damage from before
// the checksum was computed.
#pragma once

#include <chrono>
#include <filesystem>
#include <functional>

#include "core/error.h"

namespace quire {

// Runs `read`, which opens the file with Hdf5Reader, in a child process. Throws an error of `kind` that names the file
// when the child crashes or computes longer than `seconds`. Exceptions of `read` are ignored: the caller reads the file
// again afterwards and gets them there. `read` must not log. Throws Error(memory), which says nothing about the file,
// when the child cannot start, reaches a lower limit of the user, or is killed from outside. A child that still runs
// after `patience` plus `seconds` waits for a lock that another thread of this process held during the fork (some
// memory allocators do not release theirs): it is killed and another one started, three in all.
void try_in_child(const std::filesystem::path& path, ErrorKind kind, int seconds, const std::function<void()>& read,
                  std::chrono::milliseconds patience = std::chrono::seconds(60));

}  // namespace quire
