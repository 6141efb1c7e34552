// Libraries of quire that are loaded at run time lie in the folder of libquire.so.
#pragma once

#include <filesystem>
#include <string>

namespace quire {

std::filesystem::path library_folder();

// Identifies the headers that both sides were compiled from.
const char* build_id();

// A function of a library that stays loaded, or nullptr and why. Its own libraries find each other's symbols when
// `shares_symbols`.
void* library_function(const std::filesystem::path& path, const char* function, std::string& reason,
                       bool shares_symbols = false);

}  // namespace quire
