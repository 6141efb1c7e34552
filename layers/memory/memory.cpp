#include "layers/memory/memory.h"

#include <map>

#include "core/check.h"

namespace quire {

namespace {

std::map<std::string, MemoryFactory>& registry() {
  static std::map<std::string, MemoryFactory> all{{"knn", make_knn_memory}};
  return all;
}

}  // namespace

bool has_memory(const std::string& kind) {
  return registry().contains(kind);
}

std::string known_memories() {
  std::string names;
  for (const auto& [kind, factory] : registry()) names += names.empty() ? kind : ", " + kind;
  return names.empty() ? "none yet" : names;
}

void register_memory(const std::string& kind, MemoryFactory factory) {
  registry()[kind] = std::move(factory);
}

std::unique_ptr<Memory> make_memory(const Scope& scope, const MemoryConfig& config, const MixerShape& mixer) {
  QUIRE_CHECK(has_memory(config.kind), "memory: no kind '{}'", config.kind);
  return registry().at(config.kind)(scope, config, mixer);
}

}  // namespace quire
