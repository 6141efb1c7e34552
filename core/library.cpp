#include "core/library.h"

#include <dlfcn.h>

#include "core/check.h"

namespace quire {

std::filesystem::path library_folder() {
  Dl_info info{};
  if (dladdr(reinterpret_cast<const void*>(&build_id), &info) == 0 || info.dli_fname == nullptr) {
    fail(ErrorKind::internal, "the folder of libquire.so is unknown");
  }
  return std::filesystem::absolute(info.dli_fname).parent_path();
}

const char* build_id() {
  return QUIRE_BUILD_ID;
}

void* library_function(const std::filesystem::path& path, const char* function, std::string& reason,
                       bool shares_symbols) {
  const std::string file = path.filename().string();
  void* const handle = dlopen(path.c_str(), RTLD_NOW | (shares_symbols ? RTLD_GLOBAL : RTLD_LOCAL));
  if (handle == nullptr) {
    reason = fmt::format("{}: {}", file, dlerror());
    return nullptr;
  }
  void* const found = dlsym(handle, function);
  if (found == nullptr) reason = fmt::format("{}: built from other sources than libquire.so; build both again", file);
  return found;
}

}  // namespace quire
