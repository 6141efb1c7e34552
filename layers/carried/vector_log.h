// Logs of vectors, which are stored as numbers of one type or, in 8 bits, with one scale per vector (kernels/knn.h).
#pragma once

#include <functional>
#include <optional>
#include <string>

#include "layers/parameters/scope.h"
#include "layers/state/state_view.h"

namespace quire {

struct VectorLog {
  LogId log;    // entries [.., D]
  LogId scale;  // bf16 [..]; undefined where the type has no scales
};

// Declares the log `name` and, for i8 and f8, the log of its scales behind it. dtype none: the type that the model
// computes in.
VectorLog declare_vectors(const Scope& scope, LogGroupId group, const std::string& name, const Shape& entry,
                          std::optional<DType> dtype);
// Calls write(log, entries) for the log and for its scales, with `entries` [R, N, .., D] as they are stored.
void store_vectors(const StateView& state, const VectorLog& to, const Tensor& entries,
                   const std::function<void(LogId, const Tensor&)>& write);

}  // namespace quire
