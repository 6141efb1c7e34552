// Through a scope a layer names what it owns: parameters (trained), buffers (saved, not trained) and state (carried
// along a document, one entry per row). Dotted paths are the names in checkpoints, optimizer groups and logs.
#pragma once

#include <string>

#include "layers/parameter_store.h"
#include "layers/state/state_layout.h"

namespace quire {

class Scope {
 public:
  Scope(ParameterStore& store, StateLayout& layout, DType dtype, std::string path = "")
      : store_(&store), layout_(&layout), dtype_(dtype), path_(std::move(path)) {}

  Scope child(const std::string& name) const { return {*store_, *layout_, dtype_, join(name)}; }
  Scope child(const std::string& name, int64_t index) const { return child(name + "." + std::to_string(index)); }
  Scope root() const { return {*store_, *layout_, dtype_, ""}; }
  const std::string& path() const { return path_; }
  DType dtype() const { return dtype_; }

  // Matrices decay, vectors do not.
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
    return layout_->add_register(join(name), shape, options);
  }
  // Logs that move together. Without a name they have that of the scope.
  LogGroupId state_logs(const std::string& name, int64_t length, const LogGroupOptions& options = {}) const {
    return layout_->add_log_group(join(name), length, options);
  }
  LogId state_log(LogGroupId group, const std::string& name, const Shape& entry,
                  std::optional<DType> dtype = {}) const {
    return layout_->add_log(group, name, entry, dtype);
  }
  template <typename T>
  DerivedId<T> derived_state(std::function<std::unique_ptr<T>()> make) const {
    return layout_->add_derived<T>(std::move(make));
  }

 private:
  std::string join(const std::string& name) const {
    return path_.empty() || name.empty() ? path_ + name : path_ + "." + name;
  }

  ParameterStore* store_;
  StateLayout* layout_;
  DType dtype_;
  std::string path_;
};

}  // namespace quire
