// Writing, comparing and listing: visitors that only read.
#include <algorithm>

#include "core/check.h"
#include "core/config/config.h"

namespace quire {

namespace {

// Writes a tree. With `defaults`, it leaves out values that equal them, but always writes required keys. Keys without
// meaning beside the other values are written only into a tree of defaults, because there they say what another choice
// would begin with.
class WriteVisitor : public ConfigVisitor {
 public:
  explicit WriteVisitor(const ConfigNode* defaults, bool inapplicable = false)
      : defaults_(defaults), inapplicable_(inapplicable) {}
  ConfigNode tree = ConfigNode::map();

  static ConfigNode default_tree(const ConfigStruct& defaults) {
    WriteVisitor visitor(nullptr, true);
    defaults.fields(visitor);
    return std::move(visitor.tree);
  }

 protected:
  void on_field(std::string_view name, const ConfigField& field, const FieldInfo& info) override {
    if (!info.inapplicable.empty() && !inapplicable_) return;
    ConfigNode value = field.write();
    if (!info.required && is_default(name, value)) return;
    tree.add(std::string(name), std::move(value));
  }
  void on_section(std::string_view name, const ConfigStruct& section, std::string_view) override {
    WriteVisitor inner(default_of(name), inapplicable_);
    section.fields(inner);
    if (defaults_ != nullptr && inner.tree.entries.empty()) return;
    tree.add(std::string(name), std::move(inner.tree));
  }
  void on_list(std::string_view name, const ConfigList& list, std::string_view) override {
    ConfigNode item_defaults;
    list.visit_default([&](const ConfigStruct& item) { item_defaults = default_tree(item); });
    ConfigNode full = ConfigNode::list();
    ConfigNode written = ConfigNode::list();
    for (size_t i = 0; i < list.size(); ++i) {
      list.visit(i, [&](const ConfigStruct& item) {
        WriteVisitor inner(defaults_ == nullptr ? nullptr : &item_defaults, inapplicable_);
        item.fields(inner);
        written.add({}, std::move(inner.tree));
        full.add({}, write_config(item));
      });
    }
    if (!is_default(name, full)) tree.add(std::string(name), std::move(written));
  }
  // The options that the chosen kind begins with count as defaults, whichever kind is chosen.
  void on_kinds(std::string_view name, const ConfigKinds& choice, KindOptions where, const FieldInfo& info) override {
    on_field(name, KindField(choice), info);
    choice.visit([&](const ConfigStruct& options) {
      ConfigNode defaults;
      choice.visit_default(choice.kind(), [&](const ConfigStruct& fresh) { defaults = default_tree(fresh); });
      WriteVisitor inner(defaults_ == nullptr ? nullptr : &defaults, inapplicable_);
      options.fields(inner);
      if (where == KindOptions::beside) {
        for (ConfigEntry& entry : inner.tree.entries) tree.add(entry.key, std::move(entry.value));
      } else if (!inner.tree.entries.empty()) {
        tree.add(choice.kind(), std::move(inner.tree));
      }
    });
  }

 private:
  const ConfigNode* default_of(std::string_view name) const {
    const ConfigEntry* entry = defaults_ == nullptr ? nullptr : defaults_->find(name);
    return entry == nullptr ? nullptr : &entry->value;
  }
  bool is_default(std::string_view name, const ConfigNode& value) const {
    const ConfigNode* other = default_of(name);
    return other != nullptr && flow_yaml(*other) == flow_yaml(value);
  }

  const ConfigNode* defaults_;
  bool inapplicable_;
};

// Lists all fields with dotted keys in listing order; an empty list of structs counts as one value.
class FlattenVisitor : public ConfigVisitor {
 public:
  FlattenVisitor(std::string key, std::vector<ConfigSetting>& items) : key_(std::move(key)), items_(items) {}

 protected:
  void on_field(std::string_view name, const ConfigField& field, const FieldInfo& info) override {
    items_.push_back(
        {join_key(key_, name), flow_yaml(field.write()), info.resumable, info.at_evaluation, info.sizes_state});
  }
  void on_section(std::string_view name, const ConfigStruct& section, std::string_view) override {
    FlattenVisitor inner(join_key(key_, name), items_);
    section.fields(inner);
  }
  void on_list(std::string_view name, const ConfigList& list, std::string_view) override {
    const std::string key = join_key(key_, name);
    for (size_t i = 0; i < list.size(); ++i) {
      list.visit(i, [&](const ConfigStruct& item) {
        FlattenVisitor inner(join_key(key, std::to_string(i)), items_);
        item.fields(inner);
      });
    }
  }

 private:
  std::string key_;
  std::vector<ConfigSetting>& items_;
};

class ListVisitor : public ConfigVisitor {
 public:
  ListVisitor(std::string key, std::vector<ConfigKey>& keys) : key_(std::move(key)), keys_(keys) {}

 protected:
  void on_field(std::string_view name, const ConfigField& field, const FieldInfo& info) override {
    keys_.push_back({join_key(key_, name), field.type(), info.required ? "" : flow_yaml(field.write()), range(info),
                     std::string(info.unit), std::string(info.help), std::string(info.meant), info.required,
                     info.resumable, info.at_evaluation, info.sizes_state, field.choices()});
  }
  void on_section(std::string_view name, const ConfigStruct& section, std::string_view) override {
    ListVisitor inner(join_key(key_, name), keys_);
    section.fields(inner);
  }
  void on_list(std::string_view name, const ConfigList& list, std::string_view) override {
    ListVisitor inner(join_key(join_key(key_, name), "N"), keys_);
    list.visit_default([&](const ConfigStruct& item) { item.fields(inner); });
  }
  // Lists the options of every kind.
  void on_kinds(std::string_view name, const ConfigKinds& choice, KindOptions where, const FieldInfo& info) override {
    on_field(name, KindField(choice), info);
    for (const ConfigChoice& kind : choice.choices()) {
      choice.visit_default(kind.name, [&](const ConfigStruct& options) {
        if (where == KindOptions::in_section) return on_section(kind.name, options, "");
        const size_t first = keys_.size();
        options.fields(*this);
        for (size_t i = first; i < keys_.size(); ++i)
          keys_[i].help = fmt::format("kind: {}. {}", kind.name, keys_[i].help);
      });
    }
  }

 private:
  static std::string range(const FieldInfo& info) {
    const auto number = [](double value) { return write_value(value).text; };
    const std::string_view at_least = info.min_exclusive ? "above" : "at least";
    if (info.min && info.max && !info.min_exclusive) return number(*info.min) + " to " + number(*info.max);
    if (info.min && info.max) return fmt::format("above {} to {}", number(*info.min), number(*info.max));
    if (info.min) return fmt::format("{} {}", at_least, number(*info.min));
    return info.max ? "at most " + number(*info.max) : "";
  }

  std::string key_;
  std::vector<ConfigKey>& keys_;
};

const ConfigSetting* find(const std::vector<ConfigSetting>& items, const std::string& key) {
  const auto found = std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.key == key; });
  return found == items.end() ? nullptr : &*found;
}

}  // namespace

ConfigNode write_config(const ConfigStruct& value) {
  WriteVisitor visitor(nullptr);
  value.fields(visitor);
  return std::move(visitor.tree);
}

ConfigNode write_config_minimal(const ConfigStruct& value, const ConfigStruct& defaults) {
  const ConfigNode tree = WriteVisitor::default_tree(defaults);
  WriteVisitor visitor(&tree);
  value.fields(visitor);
  return std::move(visitor.tree);
}

std::vector<ConfigSetting> list_settings(const ConfigStruct& value) {
  std::vector<ConfigSetting> items;
  FlattenVisitor visitor("", items);
  value.fields(visitor);
  return items;
}

std::vector<ConfigDifference> diff_configs(const ConfigStruct& before, const ConfigStruct& after) {
  const auto old_items = list_settings(before);
  const auto new_items = list_settings(after);
  std::vector<ConfigDifference> differences;
  for (const auto& item : old_items) {
    const auto* other = find(new_items, item.key);
    if (other != nullptr && other->value == item.value) continue;
    differences.push_back({item.key, item.value, other == nullptr ? "" : other->value, item.resumable,
                           item.at_evaluation, other != nullptr && item.sizes_state});
  }
  for (const auto& item : new_items) {
    // A list of another length makes another model, even where its entries may change.
    if (find(old_items, item.key) == nullptr) differences.push_back({item.key, "", item.value});
  }
  return differences;
}

void require_resumable(const std::vector<ConfigDifference>& differences, bool drop_state) {
  std::string fixed;
  bool all_size_state = true;
  for (const ConfigDifference& difference : differences) {
    if (difference.resumable || (drop_state && difference.sizes_state)) continue;
    all_size_state = all_size_state && difference.sizes_state;
    fixed += fmt::format("{}{} (was {}, now {})", fixed.empty() ? "" : ", ", difference.key,
                         difference.before.empty() ? "absent" : shortened(difference.before),
                         difference.after.empty() ? "absent" : shortened(difference.after));
  }
  if (fixed.empty()) return;
  fail(
      ErrorKind::config, "cannot change on --resume: {}; {}", fixed.c_str(),
      all_size_state ? "--drop-state allows it and begins with empty caches and memories" : "start a new run for that");
}

std::vector<ConfigKey> list_config_keys(const ConfigStruct& defaults) {
  std::vector<ConfigKey> keys;
  ListVisitor visitor("", keys);
  defaults.fields(visitor);
  return keys;
}

std::string format_config_keys(const std::vector<ConfigKey>& keys) {
  std::string text;
  for (const ConfigKey& key : keys) {
    text += fmt::format("{}: {}", key.key, key.type);
    if (!key.range.empty()) text += fmt::format(", {}", key.range);
    if (!key.unit.empty()) text += fmt::format(", in {}", key.unit);
    text += key.required ? ", required" : fmt::format(", default {}", key.default_value);
    if (key.resumable) text += ", may change on --resume";
    if (key.sizes_state) text += ", may change on --resume with --drop-state";
    if (key.at_evaluation) text += ", may differ at evaluation";
    text += fmt::format("\n    {}\n", key.help);
    for (const ConfigChoice& choice : key.choices) {
      if (!choice.help.empty()) text += fmt::format("      {}: {}\n", choice.name, choice.help);
    }
  }
  return text;
}

}  // namespace quire
