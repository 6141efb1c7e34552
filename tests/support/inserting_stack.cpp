#include "tests/support/inserting_stack.h"

#include "core/config/config.h"
#include "layers/mechanism/mechanism_registry.h"
#include "layers/model/stack.h"

namespace quire::test {

namespace {

struct InsertingConfig {
  int64_t period = 1;
  int64_t ids = 1;
  bool predicted = false;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("period", period, {.help = "tokens between two inserted ones", .min = 1});
    v.field("ids", ids, {.help = "ids that take turns", .min = 1});
    v.field("predicted", predicted, {.help = "they are in the loss"});
  }
};

}  // namespace

Mechanism inserting_stack() {
  Mechanism stack = *mechanisms(Role::stack).front();
  stack.kind = "inserting";
  stack.help = "one block after the other, with tokens inserted into documents";
  stack.options = [] { return ConfigBox(InsertingConfig{}); };
  stack.insertion = [](const Place& place) {
    const auto& options = place.options.get<InsertingConfig>();
    return Insertion{options.period, options.ids, options.predicted};
  };
  return stack;
}

std::string inserting(const Insertion& insertion) {
  if (find_mechanism(Role::stack, "inserting") == nullptr) register_mechanism(inserting_stack());
  if (!insertion.any()) return "model.stack.kind=" + mechanisms(Role::stack).front()->kind;
  return "model.stack={kind: inserting, inserting: {period: " + std::to_string(insertion.period) +
         ", ids: " + std::to_string(insertion.ids) + ", predicted: " + (insertion.predicted ? "true" : "false") + "}}";
}

}  // namespace quire::test
