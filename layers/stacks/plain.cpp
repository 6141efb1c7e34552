// The plain stack: all blocks, one after the other.
#include <limits>

#include "layers/mechanism/mechanism_list.h"
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

}  // namespace

Mechanism plain_stack() {
  return {.role = Role::stack,
          .kind = "plain",
          .help = "one block after the other",
          .make_stack = [](const Scope& scope, const Place& place) -> std::unique_ptr<Stack> {
            return std::make_unique<PlainStack>(scope, place);
          },
          .promises =
              [](const Place&) {
                return Promises{.split_invariant = true, .full_attention = std::numeric_limits<int64_t>::max()};
              }};
}

}  // namespace quire
