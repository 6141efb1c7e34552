// Through a scope a layer names what it owns: parameters (trained), buffers (saved, not trained), state (carried along
// a document, one entry per row), learners and loss terms. Dotted paths are the names in checkpoints, optimizer groups
// and logs.
#pragma once

#include <string>

#include "layers/parameters/parameter_store.h"
#include "layers/pass/declarations.h"

namespace quire {

class Scope {
 public:
  Scope(ParameterStore& store, Declarations& declared, DType dtype, std::string path = "")
      : store_(&store), declared_(&declared), dtype_(dtype), path_(std::move(path)) {}

  Scope child(const std::string& name) const { return {*store_, *declared_, dtype_, join(name)}; }
  Scope child(const std::string& name, int64_t index) const { return child(name + "." + std::to_string(index)); }
  Scope root() const { return {*store_, *declared_, dtype_, ""}; }
  const std::string& path() const { return path_; }
  DType dtype() const { return dtype_; }
  const Declarations& declared() const { return *declared_; }

  // A linear map from `in` features to `out` features: optimizers may treat it as a matrix. stacked: so many maps of
  // out / stacked features each stand below each other.
  Parameter matrix(const std::string& name, int64_t out, int64_t in, Initializer initializer,
                   int64_t stacked = 1) const {
    return Parameter(store_->parameter(join(name), {out, in}, initializer, true, stacked));
  }
  // Tables decay, vectors do not.
  Parameter param(const std::string& name, const Shape& shape, Initializer initializer) const {
    return Parameter(store_->parameter(join(name), shape, initializer, shape.rank() > 1));
  }
  Parameter param_without_decay(const std::string& name, const Shape& shape, Initializer initializer) const {
    return Parameter(store_->parameter(join(name), shape, initializer, false));
  }
  ParameterStore::Buffer* buffer(const std::string& name, const Shape& shape, Initializer initializer) const {
    return store_->buffer(join(name), shape, wide_type(dtype_), initializer);
  }
  RegisterId state_register(const std::string& name, const Shape& shape, const RegisterOptions& options = {}) const {
    return declared_->state.add_register(join(name), shape, options);
  }
  // Logs that move together. Without a name they have that of the scope.
  LogGroupId state_logs(const std::string& name, int64_t length, const LogGroupOptions& options = {}) const {
    return declared_->state.add_log_group(join(name), length, options);
  }
  LogId state_log(LogGroupId group, const std::string& name, const Shape& entry,
                  std::optional<DType> dtype = {}) const {
    return declared_->state.add_log(group, name, entry, dtype);
  }
  template <typename T>
  DerivedId<T> derived_state(std::function<std::unique_ptr<T>()> make) const {
    return declared_->state.add_derived<T>(std::move(make));
  }
  // The layer keeps the learner as long as the model lives.
  void learner(Learner& learner) const { declared_->learners.push_back(&learner); }
  // Declares how the layer calls ops::attention in training steps.
  void attention_call(const AttentionCall& call) const { declared_->attention_calls.push_back(call); }
  // `name` is that of metrics.jsonl, without the path: layers share it (layers/pass/loss_table.h).
  LossTermId loss_term(const std::string& name, double weight, BatchCount count) const {
    return declared_->losses.add(name, weight, count);
  }
  // A value that this layer leaves for later ones of the same pass, and one that an earlier layer leaves: `path` is
  // that layer's, with the name. Error(internal) when no layer before leaves it.
  ValueId leaves_value(const std::string& name) const;
  ValueId reads_value(const std::string& path) const;

 private:
  std::string join(const std::string& name) const {
    return path_.empty() || name.empty() ? path_ + name : path_ + "." + name;
  }

  ParameterStore* store_;
  Declarations* declared_;
  DType dtype_;
  std::string path_;
};

}  // namespace quire
