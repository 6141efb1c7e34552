#include "layers/mechanism/mechanism_registry.h"

#include <algorithm>
#include <deque>

#include "core/check.h"
#include "layers/mechanism/mechanism_list.h"

namespace quire {

namespace {

// Descriptors stay where they are: others keep pointers to them.
std::deque<Mechanism>& registry() {
  static std::deque<Mechanism> all = [] {
    const std::vector<Mechanism> ours = mechanisms_of_quire();
    return std::deque<Mechanism>(ours.begin(), ours.end());
  }();
  return all;
}

ConfigBox default_options(Role role, const std::string& kind) {
  const Mechanism& chosen = mechanism(role, kind);
  return chosen.options == nullptr ? ConfigBox() : chosen.options();
}

}  // namespace

const Mechanism* find_mechanism(Role role, const std::string& kind) {
  const auto& all = registry();
  const auto found =
      std::find_if(all.begin(), all.end(), [&](const Mechanism& m) { return m.role == role && m.kind == kind; });
  return found == all.end() ? nullptr : &*found;
}

const Mechanism& mechanism(Role role, const std::string& kind) {
  if (const Mechanism* found = find_mechanism(role, kind)) return *found;
  std::string known;
  for (const Mechanism* other : mechanisms(role)) known += (known.empty() ? "" : ", ") + other->kind;
  fail(ErrorKind::config, "there is no mechanism '{}' here; known: {}", kind, known);
}

std::vector<const Mechanism*> mechanisms() {
  std::vector<const Mechanism*> all;
  for (const Mechanism& m : registry()) all.push_back(&m);
  return all;
}

std::vector<const Mechanism*> mechanisms(Role role) {
  std::vector<const Mechanism*> all = mechanisms();
  std::erase_if(all, [&](const Mechanism* m) { return m->role != role; });
  return all;
}

void register_mechanism(Mechanism added) {
  QUIRE_CHECK(find_mechanism(added.role, added.kind) == nullptr, "mechanism '{}' is registered twice", added.kind);
  registry().push_back(std::move(added));
}

KindConfig::KindConfig(Role of, const std::string& chosen)
    : role(of), kind(chosen), options(default_options(of, chosen)) {}

KindConfig::KindConfig(Role of) : KindConfig(of, mechanisms(of).front()->kind) {}

std::vector<ConfigChoice> RegisteredKinds::choices() const {
  std::vector<ConfigChoice> choices;
  for (const Mechanism* m : mechanisms(config_.role)) choices.push_back({m->kind, m->help});
  return choices;
}

void RegisteredKinds::choose(const std::string& kind) const {
  if (kind != config_.kind) config_ = KindConfig(config_.role, kind);
}

void RegisteredKinds::visit_default(const std::string& kind,
                                    const std::function<void(const ConfigStruct&)>& use) const {
  default_options(config_.role, kind).visit(use);
}

}  // namespace quire
