// Through a scope a layer names what it owns: parameters (trained), buffers (saved, not trained) and state (carried
// along a document, one entry per row). Dotted paths are the names in checkpoints, optimizer groups and logs.
#pragma once

#include <string>

#include "layers/parameter_store.h"
#include "layers/state/state.h"

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
  RegisterId state_register(const std::string& name, const Shape& shape, bool wide = false) const {
    return layout_->add_register(join(name), shape, wide);
  }
  LogId state_log(const std::string& name, const Shape& entry, int64_t length, const LogOptions& options = {}) const {
    return layout_->add_log(join(name), entry, length, options);
  }

 private:
  std::string join(const std::string& name) const { return path_.empty() ? name : path_ + "." + name; }

  ParameterStore* store_;
  StateLayout* layout_;
  DType dtype_;
  std::string path_;
};

}  // namespace quire
