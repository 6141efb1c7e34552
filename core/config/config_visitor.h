// The interface that a config struct's fields() calls. It hides the types of structs and fields, so that parsing,
// checking and writing are ordinary classes in source files.
#pragma once

#include <concepts>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "core/config/config_value.h"

namespace quire {

class ConfigVisitor;

// The argument of check(): reports a contradiction at the place where its key was written, or at the nearest section
// around it.
class ConfigChecker {
 public:
  // `path` leads from `root` to the struct being checked; `root_key` is the dotted name of `root` itself.
  ConfigChecker(const ConfigNode& root, std::string root_key, std::string path)
      : root_(root), root_key_(std::move(root_key)), path_(std::move(path)) {}
  // `key` is relative to the struct being checked. Throws Error(config) unless `condition`.
  void require(bool condition, std::string_view key, std::string_view message) const;

 private:
  const ConfigNode& root_;
  std::string root_key_;
  std::string path_;
};

// A config struct of any type.
class ConfigStruct {
 public:
  virtual ~ConfigStruct();
  virtual void fields(ConfigVisitor& visitor) const = 0;
  virtual void check(ConfigChecker& checker) const = 0;
};

template <class T>
concept ConfigStructType = !std::derived_from<T, ConfigStruct> && requires(T & value, ConfigVisitor& visitor) {
  value.fields(visitor);
};

class ConfigList {
 public:
  virtual ~ConfigList();
  virtual size_t size() const = 0;
  virtual void reset(size_t size) const = 0;  // makes `size` entries with default values
  virtual void visit(size_t index, const std::function<void(const ConfigStruct&)>& use) const = 0;
  virtual void visit_default(const std::function<void(const ConfigStruct&)>& use) const = 0;
};

class ConfigField {
 public:
  virtual ~ConfigField();
  virtual std::string type() const = 0;
  virtual std::vector<ConfigChoice> choices() const { return {}; }
  virtual void read(const ConfigNode& node, const ValueContext& context) const = 0;
  virtual ConfigNode write() const = 0;
};

// A choice between kinds, each with its own options.
class ConfigKinds {
 public:
  virtual ~ConfigKinds();
  virtual std::vector<ConfigChoice> choices() const = 0;
  virtual std::string kind() const = 0;  // the chosen kind; empty when none was chosen
  // Chooses one of choices(). A kind other than the current one begins with the default values of its options.
  virtual void choose(const std::string& kind) const = 0;
  virtual void visit(const std::function<void(const ConfigStruct&)>& use) const = 0;  // options of the chosen kind
  virtual void visit_default(const std::string& kind, const std::function<void(const ConfigStruct&)>& use) const = 0;
};

// Says where the options of a kind stand: in a section named after it, or beside the key that names the kind.
enum class KindOptions { in_section, beside };

// One entry of an overlay list such as model.layer_overrides: {layers: [0, -1], <keys of the struct it changes>}.
struct ConfigOverlay {
  std::vector<int64_t> layers;
  ConfigNode changes;
  std::string key;  // "model.layer_overrides.0"
};

using ConfigSettings = std::vector<std::pair<std::string, std::string>>;  // dotted key, value as YAML

template <class T>
class StructRef : public ConfigStruct {
 public:
  explicit StructRef(T& value) : value_(value) {}
  void fields(ConfigVisitor& visitor) const override { value_.fields(visitor); }
  void check([[maybe_unused]] ConfigChecker& checker) const override {
    if constexpr (requires { std::as_const(value_).check(checker); }) std::as_const(value_).check(checker);
  }

 private:
  T& value_;
};

template <class T>
class ListRef : public ConfigList {
 public:
  explicit ListRef(std::vector<T>& items) : items_(items) {}
  size_t size() const override { return items_.size(); }
  void reset(size_t size) const override { items_.assign(size, T{}); }
  void visit(size_t index, const std::function<void(const ConfigStruct&)>& use) const override {
    use(StructRef<T>(items_[index]));
  }
  void visit_default(const std::function<void(const ConfigStruct&)>& use) const override {
    T item{};
    use(StructRef<T>(item));
  }

 private:
  std::vector<T>& items_;
};

template <class T>
class FieldRef : public ConfigField {
 public:
  explicit FieldRef(T& value) : value_(value) {}
  std::string type() const override { return type_of_field<T>(); }
  std::vector<ConfigChoice> choices() const override { return choices_of_field<T>(); }
  void read(const ConfigNode& node, const ValueContext& context) const override { read_field(node, context, value_); }
  ConfigNode write() const override { return write_field(value_); }

 private:
  T& value_;
};

class KindField : public ConfigField {
 public:
  explicit KindField(const ConfigKinds& kinds) : kinds_(kinds) {}
  std::string type() const override;
  std::vector<ConfigChoice> choices() const override { return kinds_.choices(); }
  void read(const ConfigNode& node, const ValueContext& context) const override;
  ConfigNode write() const override;

 private:
  const ConfigKinds& kinds_;
};

class SettingsRef : public ConfigField {
 public:
  explicit SettingsRef(ConfigSettings& value) : value_(value) {}
  std::string type() const override;
  void read(const ConfigNode& node, const ValueContext& context) const override;
  ConfigNode write() const override;

 private:
  ConfigSettings& value_;
};

class OverlaysRef : public ConfigField {
 public:
  OverlaysRef(std::vector<ConfigOverlay>& value, const ConfigStruct& prototype)
      : value_(value), prototype_(prototype) {}
  std::string type() const override;
  void read(const ConfigNode& node, const ValueContext& context) const override;
  ConfigNode write() const override;

 private:
  std::vector<ConfigOverlay>& value_;
  const ConfigStruct& prototype_;
};

class ConfigVisitor {
 public:
  virtual ~ConfigVisitor();

  template <class T>
  void field(std::string_view name, T& value, const FieldInfo& info = {}) {
    on_field(name, FieldRef<T>(value), info);
  }
  template <ConfigStructType T>
  void section(std::string_view name, T& value, std::string_view help = {}) {
    on_section(name, StructRef<T>(value), help);
  }
  template <ConfigStructType T>
  void list(std::string_view name, std::vector<T>& items, std::string_view help = {}) {
    on_list(name, ListRef<T>(items), help);
  }
  // Visits a choice between kinds; the key `name` names the kind.
  void kinds(std::string_view name, const ConfigKinds& choice, KindOptions where, const FieldInfo& info) {
    on_kinds(name, choice, where, info);
  }
  // Keys of the whole configuration that have other names now: messages say them. Called first.
  void replaced(const std::vector<ReplacedKey>& keys) { on_replaced(keys); }
  // Visits dotted keys with values that are kept as text, for a later with_overrides().
  void map(std::string_view name, ConfigSettings& settings, const FieldInfo& info) {
    on_field(name, SettingsRef(settings), info);
  }
  void map(std::string_view name, ConfigSettings& settings, std::string_view help = {}) {
    map(name, settings, FieldInfo{.help = help});
  }
  // Visits an overlay list. Its entries are checked against `prototype` when read, and applied later with
  // apply_overlay().
  template <ConfigStructType T>
  void overlay(std::string_view name, std::vector<ConfigOverlay>& overlays, T prototype, std::string_view help = {}) {
    const StructRef<T> reference(prototype);
    on_field(name, OverlaysRef(overlays, reference), FieldInfo{.help = help});
  }

 protected:
  virtual void on_replaced(const std::vector<ReplacedKey>&) {}
  virtual void on_field(std::string_view name, const ConfigField& field, const FieldInfo& info) = 0;
  virtual void on_section(std::string_view name, const ConfigStruct& section, std::string_view help) = 0;
  virtual void on_list(std::string_view name, const ConfigList& list, std::string_view help) = 0;
  // By default the key is visited as a field, and then the options of the chosen kind.
  virtual void on_kinds(std::string_view name, const ConfigKinds& choice, KindOptions where, const FieldInfo& info);
};

}  // namespace quire
