// A configuration struct whose type only its owner knows, for example the options of one kind of mechanism. Copies are
// deep.
#pragma once

#include <functional>
#include <memory>
#include <typeinfo>

#include "core/check.h"
#include "core/config/config_visitor.h"

namespace quire {

class ConfigBox {
 public:
  ConfigBox() = default;  // an empty box has no options
  template <ConfigStructType T>
  explicit ConfigBox(T value) : stored_(std::make_unique<StoredValue<T>>(std::move(value))) {}
  ConfigBox(const ConfigBox& other) : stored_(other.stored_ ? other.stored_->copy() : nullptr) {}
  ConfigBox(ConfigBox&&) noexcept = default;
  ConfigBox& operator=(ConfigBox other) noexcept {
    stored_ = std::move(other.stored_);
    return *this;
  }
  ~ConfigBox() = default;

  template <ConfigStructType T>
  const T& get() const {
    QUIRE_CHECK(stored_ && *stored_->type == typeid(T),
                "configuration: the options of a kind were asked for as another's");
    return static_cast<const StoredValue<T>&>(*stored_).value;
  }
  template <ConfigStructType T>
  T& get() {
    return const_cast<T&>(std::as_const(*this).get<T>());
  }
  void visit(const std::function<void(const ConfigStruct&)>& use) const {
    if (stored_) stored_->visit(use);
  }

 private:
  struct Stored {
    explicit Stored(const std::type_info& of_value) : type(&of_value) {}
    virtual ~Stored() = default;
    virtual std::unique_ptr<Stored> copy() const = 0;
    virtual void visit(const std::function<void(const ConfigStruct&)>& use) = 0;
    const std::type_info* type;
  };
  template <class T>
  struct StoredValue final : Stored {
    explicit StoredValue(T given) : Stored(typeid(T)), value(std::move(given)) {}
    std::unique_ptr<Stored> copy() const override { return std::make_unique<StoredValue>(value); }
    void visit(const std::function<void(const ConfigStruct&)>& use) override { use(StructRef<T>(value)); }
    T value;
  };

  std::unique_ptr<Stored> stored_;
};

}  // namespace quire
