// Libraries that are loaded at run time. quire's own lie in the folder of libquire.so; NVIDIA's lie where the loader
// looks or, on machines that have them only in a Python environment, in its packages.
#pragma once

#include <filesystem>
#include <string>

namespace quire {

std::filesystem::path library_folder();

// Identifies the headers that both sides were compiled from.
const char* build_id();

// Loads a library for good, or returns nullptr and the reason. `file` is its name, as in "libcudnn.so.9", or a path. A
// name that the loader does not find is searched as nvidia/*/lib/NAME among the packages of the Python environments
// that VIRTUAL_ENV, CONDA_PREFIX and the python3 on PATH name, and of the system's.
void* open_library(const std::string& file, std::string& reason);

// Returns a function of a library that stays loaded, or nullptr and the reason. With `shares_symbols`, libraries that
// it loads itself find its symbols. Libraries that it depends on are searched as open_library() does.
void* library_function(const std::filesystem::path& path, const char* function, std::string& reason,
                       bool shares_symbols = false);

}  // namespace quire
