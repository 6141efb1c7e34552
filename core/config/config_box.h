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
  explicit ConfigBox(T value) : held_(std::make_unique<Holding<T>>(std::move(value))) {}
  ConfigBox(const ConfigBox& other) : held_(other.held_ ? other.held_->copy() : nullptr) {}
  ConfigBox(ConfigBox&&) noexcept = default;
  ConfigBox& operator=(ConfigBox other) noexcept {
    held_ = std::move(other.held_);
    return *this;
  }
  ~ConfigBox() = default;

  template <ConfigStructType T>
  const T& get() const {
    QUIRE_CHECK(held_ && *held_->type == typeid(T), "configuration: the options of a kind were asked for as another's");
    return static_cast<const Holding<T>&>(*held_).value;
  }
  template <ConfigStructType T>
  T& get() {
    return const_cast<T&>(std::as_const(*this).get<T>());
  }
  void visit(const std::function<void(const ConfigStruct&)>& use) const {
    if (held_) held_->visit(use);
  }

 private:
  struct Held {
    explicit Held(const std::type_info& held) : type(&held) {}
    virtual ~Held() = default;
    virtual std::unique_ptr<Held> copy() const = 0;
    virtual void visit(const std::function<void(const ConfigStruct&)>& use) = 0;
    const std::type_info* type;
  };
  template <class T>
  struct Holding final : Held {
    explicit Holding(T held) : Held(typeid(T)), value(std::move(held)) {}
    std::unique_ptr<Held> copy() const override { return std::make_unique<Holding>(value); }
    void visit(const std::function<void(const ConfigStruct&)>& use) override { use(StructRef<T>(value)); }
    T value;
  };

  std::unique_ptr<Held> held_;
};

}  // namespace quire
