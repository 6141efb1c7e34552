// With QUIRE_TEST_PTX=FOLDER kernels of the host's tests run as nvcc has compiled them, from the *.ptx files there.
// With QUIRE_TEST_PTX_COUNTS=FILE the counts of executed instructions are written there when the program ends.
#include <cxxabi.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <numeric>
#include <unordered_map>

#include "tests/support/cuda_shim/cuda_runtime.h"
#include "tests/support/ptx/machine.h"

namespace quire::ptx {

namespace {

[[noreturn]] void give_up(const std::string& what) {
  std::fprintf(stderr, "ptx: %s\n", what.c_str());
  std::abort();
}

// Unnamed namespaces have names of the compiler's in PTX: 63_GLOBAL__N__2db061b9_30_file_cu_99bdfe23 is 12_GLOBAL__N_1
// here.
std::string common_symbol(std::string symbol) {
  const size_t at = symbol.find("_GLOBAL__N_");
  if (at == std::string::npos) return symbol;
  size_t digits = at;
  while (digits > 0 && std::isdigit(static_cast<unsigned char>(symbol[digits - 1])) != 0) --digits;
  const size_t length = std::stoul(symbol.substr(digits, at - digits));
  return symbol.replace(digits, at + length - digits, "12_GLOBAL__N_1");
}

// A kernel's name and its arguments as a template, without the types of its parameters, of which the two compilers
// write some in different ways.
std::string name_of(const std::string& symbol) {
  int status = 0;
  char* const demangled = abi::__cxa_demangle(symbol.c_str(), nullptr, nullptr, &status);
  if (status != 0) return symbol;
  std::string name = demangled;
  std::free(demangled);
  // The parameters are in the last brackets.
  int depth = 0;
  for (size_t at = name.rfind(')'); at != std::string::npos && at > 0; --at) {
    if (name[at] == ')') ++depth;
    if (name[at] == '(' && --depth == 0) return name.substr(0, at);
  }
  return name;
}

struct Modules {
  struct Place {
    std::string file, symbol;
    std::unique_ptr<Kernel> kernel;
  };
  std::unordered_map<std::string, Place> kernels;                     // by common symbols
  std::unordered_map<std::string, std::vector<std::string>> symbols;  // common ones, by names

  explicit Modules(const char* folder) {
    std::error_code ignored;  // then it has no kernel
    for (const auto& entry : std::filesystem::directory_iterator(folder, ignored)) {
      if (entry.path().extension() != ".ptx") continue;
      std::ifstream file(entry.path());
      for (std::string line; std::getline(file, line);) {
        const size_t at = line.find(".entry ");
        if (at == std::string::npos) continue;
        const size_t begin = at + std::strlen(".entry ");
        const std::string symbol = line.substr(begin, line.find_first_of("( \t", begin) - begin);
        const std::string common = common_symbol(symbol);
        if (kernels.emplace(common, Place{entry.path(), symbol, nullptr}).second) {
          symbols[name_of(common)].push_back(common);
        } else if (common != symbol) {  // a header's kernel is in every module that uses it
          give_up("two kernels have the name " + symbol);
        }
      }
    }
    if (kernels.empty()) give_up(std::string("there is no kernel in QUIRE_TEST_PTX=") + folder);
  }

  const Kernel& get(const std::string& symbol) {
    auto found = kernels.find(common_symbol(symbol));
    if (found == kernels.end()) {
      const std::vector<std::string>& alike = symbols[name_of(symbol)];
      if (alike.size() != 1) give_up("no file in QUIRE_TEST_PTX has the kernel " + symbol);
      found = kernels.find(alike[0]);
    }
    Place& place = found->second;
    try {
      if (place.kernel == nullptr) place.kernel = read_kernel(place.file, place.symbol);
    } catch (const std::exception& error) {
      give_up(error.what());
    }
    return *place.kernel;
  }
};

Modules& modules() {
  static Modules& all = *new Modules(std::getenv("QUIRE_TEST_PTX"));
  return all;
}

// A line of JSON for each kernel that ran.
void write_counts() {
  const char* const path = std::getenv("QUIRE_TEST_PTX_COUNTS");
  std::ofstream file(path);
  if (!file) give_up(std::string("QUIRE_TEST_PTX_COUNTS=") + path + " cannot be written");
  for (const auto& [symbol, place] : modules().kernels) {
    if (place.kernel == nullptr || place.kernel->counts.launches == 0) continue;
    const Counts& counts = place.kernel->counts;
    const auto of = [&](Kind kind) { return counts.instructions[static_cast<size_t>(kind)]; };
    file << nlohmann::json{{"kernel", name_of(symbol)},
                           {"launches", counts.launches},
                           {"blocks", counts.blocks},
                           {"instructions",
                            std::accumulate(counts.instructions.begin(), counts.instructions.end(), int64_t{0})},
                           {"special", of(Kind::special)},
                           {"global", of(Kind::global)},
                           {"local", of(Kind::local)},
                           {"shared", of(Kind::shared)},
                           {"tensor", of(Kind::tensor)},
                           {"control", of(Kind::control)},
                           {"sectors", counts.sectors},
                           {"fewest_sectors", counts.fewest_sectors},
                           {"wavefronts", counts.wavefronts},
                           {"fewest_wavefronts", counts.fewest_wavefronts}}
                .dump()
         << "\n";
  }
}

void run(const std::string& symbol, dim3 grid, dim3 block, size_t shared_bytes,
         const std::vector<shim::Parameter>& parameters) {
  const Kernel& kernel = modules().get(symbol);
  bool fits = kernel.parameters.size() == parameters.size();
  for (size_t n = 0; fits && n < parameters.size(); ++n) fits = kernel.parameters[n].second == parameters[n].bytes;
  if (!fits) give_up("parameters differ: " + symbol);
  for (size_t n = 0; n < parameters.size(); ++n) {
    std::memcpy(kernel.parameter_memory.get() + kernel.parameters[n].first, parameters[n].at, parameters[n].bytes);
  }
  run_grid(kernel, {grid.x, grid.y, grid.z}, {block.x, block.y, block.z}, shared_bytes);
}

const bool g_in_place = [] {
  const char* const folder = std::getenv("QUIRE_TEST_PTX");
  if (folder != nullptr) shim::set_grid_runner(run);
  if (std::getenv("QUIRE_TEST_PTX_COUNTS") != nullptr) {
    if (folder == nullptr) give_up("QUIRE_TEST_PTX_COUNTS counts nothing without QUIRE_TEST_PTX");
    g_counts_accesses = true;
    std::atexit(write_counts);
  }
  return folder != nullptr;
}();

}  // namespace

}  // namespace quire::ptx
