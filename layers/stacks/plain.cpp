// The plain stack: all blocks, one after the other.
#include <limits>

#include "layers/mechanism/mechanism_list.h"
#include "layers/mechanism/mechanism_registry.h"
#include "layers/model/block.h"
#include "layers/model/stack.h"

namespace quire {

namespace {

class PlainStack final : public Stack {
 public:
  PlainStack(const Scope& scope, const Place& place)
      : blocks_(make_blocks(scope.root(), place.model, 0, place.model.layers)) {}

  Variable operator()(const Forward& f, const Variable& x) const override {
    Variable y = x;
    for (const std::unique_ptr<Block>& block : blocks_) y = (*block)(f, y);
    return y;
  }

 private:
  std::vector<std::unique_ptr<Block>> blocks_;
};

// Returns the stack that a mixer of the model makes instead; nullptr where none does.
std::unique_ptr<Stack> stack_of_a_mixer(const Scope& scope, const ModelConfig& model) {
  const std::vector<LayerConfig> layers = model.layer_configs();
  for (size_t i = 0; i < layers.size(); ++i) {
    const KindConfig& mixer = layers[i].attention.mechanism;
    const auto make = mechanism(Role::mixer, mixer.kind).make_stack;
    if (make == nullptr) continue;
    std::unique_ptr<Stack> made = make(scope, {model, layers[i], mixer.options, static_cast<int64_t>(i)});
    if (made) return made;
  }
  return nullptr;
}

}  // namespace

Mechanism plain_stack() {
  return {.role = Role::stack,
          .kind = "plain",
          .help = "one block after the other",
          .make_stack = [](const Scope& scope, const Place& place) -> std::unique_ptr<Stack> {
            std::unique_ptr<Stack> made = stack_of_a_mixer(scope, place.model);
            return made ? std::move(made) : std::make_unique<PlainStack>(scope, place);
          },
          .promises =
              [](const Place&) {
                return Promises{.split_invariant = true, .full_attention = std::numeric_limits<int64_t>::max()};
              }};
}

}  // namespace quire
