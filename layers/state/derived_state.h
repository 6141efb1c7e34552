// Interface of data that a mechanism derives from a row's state and can derive again, such as an index over the entries
// of a log. The pool owns one per row and clears it when the state that it was derived from is gone.
#pragma once

namespace quire {

class DerivedState {
 public:
  DerivedState() = default;
  DerivedState(const DerivedState&) = delete;
  DerivedState& operator=(const DerivedState&) = delete;
  virtual ~DerivedState() = default;
  // Called when the row begins a document, was cleared or was loaded: what was derived no longer holds.
  virtual void clear() = 0;
};

}  // namespace quire
