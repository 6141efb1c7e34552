// All mechanisms by role and kind.
#pragma once

#include <vector>

#include "layers/mechanism/mechanism.h"

namespace quire {

const Mechanism* find_mechanism(Role role, const std::string& kind);  // nullptr when there is none
const Mechanism& mechanism(Role role, const std::string& kind);       // Error(config) when there is none
std::vector<const Mechanism*> mechanisms(Role role);                  // the default first
std::vector<const Mechanism*> mechanisms();
// Adds a mechanism from outside quire. Must be called before a configuration is read.
void register_mechanism(Mechanism mechanism);

// The chosen kind of a role, and its options.
struct KindConfig {
  explicit KindConfig(Role role);  // the default kind
  KindConfig(Role role, const std::string& kind);
  static KindConfig unset(Role role) { return KindConfig(role, "", ConfigBox()); }

  Role role;
  std::string kind;  // empty: none chosen yet
  ConfigBox options;

 private:
  KindConfig(Role of, std::string chosen, ConfigBox with)
      : role(of), kind(std::move(chosen)), options(std::move(with)) {}
};

// KindConfig as a field of a configuration.
class RegisteredKinds : public ConfigKinds {
 public:
  explicit RegisteredKinds(KindConfig& config) : config_(config) {}
  std::vector<ConfigChoice> choices() const override;
  std::string kind() const override { return config_.kind; }
  void choose(const std::string& kind) const override;
  void visit(const std::function<void(const ConfigStruct&)>& use) const override { config_.options.visit(use); }
  void visit_default(const std::string& kind, const std::function<void(const ConfigStruct&)>& use) const override;

 private:
  KindConfig& config_;
};

}  // namespace quire
