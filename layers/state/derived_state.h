// Interface of what a mechanism keeps of a row beside its state and can make again from it, such as an index over the
// entries of a log. The pool owns one per row and tells it when the state that it was made from is gone.
#pragma once

namespace quire {

class DerivedState {
 public:
  DerivedState() = default;
  DerivedState(const DerivedState&) = delete;
  DerivedState& operator=(const DerivedState&) = delete;
  virtual ~DerivedState() = default;
  // The row begins a document, was cleared, or was loaded: what was made of its state no longer holds.
  virtual void clear() = 0;
};

}  // namespace quire
