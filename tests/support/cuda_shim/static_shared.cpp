#include "tests/support/cuda_shim/static_shared.h"

#include <elf.h>
#include <link.h>
#if defined(__clang__)
#include <sanitizer/asan_interface.h>
#endif

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <unordered_map>

namespace quire::shim {

namespace {

// clang counts the bytes behind an array that AddressSanitizer watches as its own, GCC does not.
size_t bytes_without_redzone([[maybe_unused]] const SharedArray& array) {
#if defined(__clang__)
#if __has_feature(address_sanitizer)
  const void* const watched = __asan_region_is_poisoned(array.begin, array.bytes);
  if (watched != nullptr) {
    return static_cast<size_t>(static_cast<const char*>(watched) - static_cast<char*>(array.begin));
  }
#endif
#endif
  return array.bytes;
}

// The program's own table of symbols.
struct Symbols {
  std::unordered_map<const void*, std::string> functions;  // by address
  std::multimap<std::string, SharedArray> locals;          // static variables of functions, by symbol

  Symbols() {
    std::ifstream file("/proc/self/exe", std::ios::binary | std::ios::ate);
    std::string bytes(static_cast<size_t>(file.tellg()), 0);
    file.seekg(0).read(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    uintptr_t base = 0;
    ::dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* to) {  // the first one is the program
          *static_cast<uintptr_t*>(to) = info->dlpi_addr;
          return 1;
        },
        &base);
    const auto header = read<Elf64_Ehdr>(bytes, 0);
    for (size_t n = 0; n < header.e_shnum; ++n) {
      const auto section = read<Elf64_Shdr>(bytes, header.e_shoff + n * header.e_shentsize);
      if (section.sh_type != SHT_SYMTAB) continue;
      const auto names = read<Elf64_Shdr>(bytes, header.e_shoff + section.sh_link * header.e_shentsize);
      for (size_t at = 0; at < section.sh_size; at += section.sh_entsize) {
        const auto symbol = read<Elf64_Sym>(bytes, section.sh_offset + at);
        const char* const name = bytes.c_str() + names.sh_offset + symbol.st_name;
        auto* const address = reinterpret_cast<char*>(base + symbol.st_value);
        if (ELF64_ST_TYPE(symbol.st_info) == STT_FUNC) functions.emplace(address, name);
        if (ELF64_ST_TYPE(symbol.st_info) == STT_OBJECT && std::strncmp(name, "_ZZ", 3) == 0) {
          locals.emplace(name, SharedArray{address, symbol.st_size});
        }
      }
    }
    if (functions.empty()) {
      std::fprintf(stderr, "cuda_shim: the program has no symbols, by which shared memory is found\n");
      std::abort();
    }
  }

  template <typename T>
  static T read(const std::string& bytes, size_t at) {
    T value;
    std::memcpy(&value, bytes.data() + at, sizeof value);
    return value;
  }
};

// Never destroyed: a stream's thread may outlive statics.
const Symbols& symbols_of_program() {
  static const Symbols& symbols = *new Symbols;
  return symbols;
}

}  // namespace

std::string symbol_of(const void* kernel) {
  const auto found = symbols_of_program().functions.find(kernel);
  return found == symbols_of_program().functions.end() ? "" : found->second;
}

const std::vector<SharedArray>& static_shared_of(const void* kernel) {
  static std::mutex& mutex = *new std::mutex;
  const Symbols& symbols = symbols_of_program();
  static auto& known = *new std::unordered_map<const void*, std::vector<SharedArray>>;
  const std::lock_guard lock(mutex);
  const auto [entry, is_new] = known.try_emplace(kernel);
  if (!is_new) return entry->second;
  const auto function = symbols.functions.find(kernel);
  if (function == symbols.functions.end() || !function->second.starts_with("_Z")) return entry->second;
  // f's variable x is _ZZ, f without _Z, E, x.
  const std::string prefix = "_Z" + function->second.substr(1) + "E";
  for (auto next = symbols.locals.lower_bound(prefix); next != symbols.locals.end() && next->first.starts_with(prefix);
       ++next) {
    SharedArray array = next->second;
    array.bytes = bytes_without_redzone(array);
    entry->second.push_back(array);
  }
  return entry->second;
}

}  // namespace quire::shim
