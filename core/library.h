// Libraries that are loaded at run time. Those of quire lie in the folder of libquire.so; those of NVIDIA where the
// loader looks or, on machines that have them in a Python environment alone, in its packages.
#pragma once

#include <filesystem>
#include <string>

namespace quire {

std::filesystem::path library_folder();

// Identifies the headers that both sides were compiled from.
const char* build_id();

// A library that stays loaded, or nullptr and why. `file`: its name, as in "libcudnn.so.9", or a path. A name that the
// loader does not find is looked for as nvidia/*/lib/NAME among the packages of the Python environments that
// VIRTUAL_ENV, CONDA_PREFIX and the python3 on PATH name, and of the system's.
void* open_library(const std::string& file, std::string& reason);

// A function of a library that stays loaded, or nullptr and why. Its own libraries find each other's symbols when
// `shares_symbols`. Libraries that it needs are looked for as open_library() does.
void* library_function(const std::filesystem::path& path, const char* function, std::string& reason,
                       bool shares_symbols = false);

}  // namespace quire
