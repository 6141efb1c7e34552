// Reads configurations: one visitor takes values from the tree, then another runs the checks.
#include "core/config/config.h"

#include <algorithm>

#include "core/check.h"
#include "core/log.h"
#include "core/spelling.h"

namespace quire {

namespace {

std::string_view last_segment(std::string_view key) {
  const size_t dot = key.rfind('.');
  return dot == std::string_view::npos ? key : key.substr(dot + 1);
}

// Returns the key whose meaning contains the words of `name`: "learning_rate" gives optimizer.lr, "peak learning rate".
// The shortest meaning wins. Empty when there is none.
std::string key_with_meaning(const std::vector<ConfigKey>& keys, std::string_view name) {
  std::string words(last_segment(name));
  std::replace(words.begin(), words.end(), '_', ' ');
  constexpr size_t kShortestWords = 8;  // shorter words occur in too many meanings
  if (words.size() < kShortestWords) return "";
  const ConfigKey* found = nullptr;
  for (const ConfigKey& key : keys) {
    if (key.help.find(words) == std::string::npos) continue;
    if (found == nullptr || key.help.size() < found->help.size()) found = &key;
  }
  return found == nullptr ? "" : found->key;
}

// Returns the key that people call `name` elsewhere; empty when there is none.
std::string key_called(const std::vector<ConfigKey>& keys, std::string_view name) {
  std::string misspelt(last_segment(name));
  std::replace(misspelt.begin(), misspelt.end(), '-', '_');
  for (const ConfigKey& key : keys) {
    const std::string words = " " + key.meant + " ";
    if (!misspelt.empty() && words.find(" " + misspelt + " ") != std::string::npos) return key.key;
  }
  return "";
}

const ConfigNode* child(const ConfigNode& node, std::string_view name) {
  const ConfigEntry* entry = node.find(name);
  return entry == nullptr ? nullptr : &entry->value;
}

void expect_section(const ConfigNode& node, const std::string& key) {
  if (node.kind != ConfigNode::Kind::map && node.kind != ConfigNode::Kind::null) {
    config_error(node.location, key, fmt::format("expects a section of 'key: value' lines, got {}", node.describe()));
  }
}

// Missing keys are reported after wrong ones, because a misspelt required key is both.
struct Reading {
  const ConfigStruct& root;
  std::string root_key;
  std::string written;
  struct Missing {
    ConfigLocation place;
    std::string key;
  };
  std::vector<Missing> missing;
  const std::vector<ReplacedKey>* replaced = nullptr;

  std::string describe_replaced(const std::string& key) const {
    return replaced == nullptr ? "" : describe_replaced_key(*replaced, key, root_key);
  }
};

class ReadVisitor : public ConfigVisitor {
 public:
  ReadVisitor(const ConfigNode& node, std::string key, Reading& reading)
      : node_(node), key_(std::move(key)), reading_(reading) {
    const bool is_value = node.kind == ConfigNode::Kind::scalar || node.kind == ConfigNode::Kind::list;
    const std::string replaced = is_value ? reading_.describe_replaced(key_) : "";
    if (!replaced.empty()) config_error(node.location, key_, replaced);
    expect_section(node, key_);
  }

  void refuse_unknown() const {
    for (const ConfigEntry& entry : node_.entries) {
      if (std::find(seen_.begin(), seen_.end(), entry.key) == seen_.end()) {
        const std::string replaced = reading_.describe_replaced(join_key(key_, entry.key));
        if (!replaced.empty()) config_error(entry.key_location, join_key(key_, entry.key), replaced);
        if (belongs_to_another_kind(entry)) continue;
        config_error(entry.key_location, join_key(key_, entry.key), "unknown key; " + suggestion(entry.key));
      }
    }
  }

 protected:
  void on_replaced(const std::vector<ReplacedKey>& keys) override { reading_.replaced = &keys; }
  void on_field(std::string_view name, const ConfigField& field, const FieldInfo& info) override {
    seen_.emplace_back(name);
    const ConfigNode* value = child(node_, name);
    if (value != nullptr) {
      if (!info.inapplicable.empty()) {
        if (!reading_.written.empty() && node_.find(name)->key_location.file == reading_.written) return;
        const std::string before = flow_yaml(field.write());
        field.read(*value, {join_key(key_, name), info, reading_.replaced});
        if (flow_yaml(field.write()) == before) return;
        config_error(node_.find(name)->key_location, join_key(key_, name),
                     fmt::format("means nothing here: {}; leave it out", info.inapplicable));
      }
      field.read(*value, {join_key(key_, name), info, reading_.replaced});
    } else if (info.required) {
      reading_.missing.push_back({node_.location, join_key(key_, name)});
    }
  }

  void on_section(std::string_view name, const ConfigStruct& section, std::string_view) override {
    seen_.emplace_back(name);
    ConfigNode absent;
    absent.location = node_.location;
    const ConfigNode* value = child(node_, name);
    read(value == nullptr ? absent : *value, section, join_key(key_, name));
  }

  void on_list(std::string_view name, const ConfigList& list, std::string_view) override {
    seen_.emplace_back(name);
    const ConfigNode* value = child(node_, name);
    if (value == nullptr) return;
    const std::string key = join_key(key_, name);
    expect_list(*value, {key, {}});
    list.reset(value->entries.size());
    for (size_t i = 0; i < value->entries.size(); ++i) {
      list.visit(
          i, [&](const ConfigStruct& item) { read(value->entries[i].value, item, join_key(key, std::to_string(i))); });
    }
  }
  void on_kinds(std::string_view name, const ConfigKinds& choice, KindOptions where, const FieldInfo& info) override {
    ConfigVisitor::on_kinds(name, choice, where, info);
    for (const ConfigChoice& other : choice.choices()) {
      if (other.name == choice.kind()) continue;
      if (where == KindOptions::in_section) {
        foreign_.push_back({other.name, std::string(name), other.name, choice.kind()});
        continue;
      }
      choice.visit_default(other.name, [&](const ConfigStruct& options) {
        for (const ConfigKey& key : list_config_keys(options)) {
          foreign_.push_back({key.key.substr(0, key.key.find('.')), std::string(name), other.name, choice.kind()});
        }
      });
    }
  }

 private:
  // A key that belongs to another kind.
  struct Foreign {
    std::string key;
    std::string field;  // the field that names the kind
    std::string theirs;
    std::string chosen;
  };
  // Returns whether the entry belongs to another kind. Such a key is left out, with a message, when an override has
  // changed the kind that a file gave; it is an error when one text gives both.
  bool belongs_to_another_kind(const ConfigEntry& entry) const {
    const auto foreign =
        std::find_if(foreign_.begin(), foreign_.end(), [&](const auto& f) { return f.key == entry.key; });
    if (foreign == foreign_.end()) return false;
    const ConfigEntry* field = node_.find(foreign->field);
    if (field == nullptr && foreign->chosen.empty()) return true;  // no kind, which is required
    const bool overridden = field != nullptr && field->value.location.line == 0 && entry.key_location.line != 0;
    if (!overridden) {
      config_error(entry.key_location, join_key(key_, entry.key),
                   fmt::format("belongs to {}: {}, but {} is {} here; leave it out, or change {}", foreign->field,
                               foreign->theirs, foreign->field, foreign->chosen, join_key(key_, foreign->field)));
    }
    log_info(fmt::format("{} is left out: it belongs to {}: {}, and {} is {} now", join_key(key_, entry.key),
                         foreign->field, foreign->theirs, join_key(key_, foreign->field), foreign->chosen));
    return true;
  }

  void read(const ConfigNode& node, const ConfigStruct& value, std::string key) {
    ReadVisitor inner(node, std::move(key), reading_);
    value.fields(inner);
    inner.refuse_unknown();
  }

  // Returns the key that a misspelt one most likely means: a key of this section that differs by few letters, else a
  // key of the same name elsewhere, else one whose meaning has these words.
  std::string suggestion(const std::string& unknown) const {
    const std::string nearest = nearest_name(seen_, unknown);
    std::string meant = nearest.empty() ? "" : join_key(key_, nearest);
    if (nearest.empty() || edit_distance(nearest, unknown) > 1) {
      const std::vector<ConfigKey> keys = list_config_keys(reading_.root);
      const auto same_name = std::find_if(keys.begin(), keys.end(), [&](const ConfigKey& other) {
        return last_segment(other.key) == last_segment(unknown);
      });
      if (same_name != keys.end()) meant = join_key(reading_.root_key, same_name->key);
      if (const std::string called = key_called(keys, unknown); same_name == keys.end() && !called.empty()) {
        meant = join_key(reading_.root_key, called);
      }
      if (meant.empty()) {
        const std::string described = key_with_meaning(keys, unknown);
        if (!described.empty()) meant = join_key(reading_.root_key, described);
      }
    }
    if (!meant.empty()) return fmt::format("did you mean {}?", meant);
    return fmt::format("the keys here are {}", fmt::join(seen_, ", "));
  }

  const ConfigNode& node_;
  std::string key_;
  Reading& reading_;
  std::vector<std::string> seen_;
  std::vector<Foreign> foreign_;
};

class CheckVisitor : public ConfigVisitor {
 public:
  CheckVisitor(const ConfigNode& root, std::string root_key, std::string path)
      : root_(root), root_key_(std::move(root_key)), path_(std::move(path)) {}

  // Checks run from the inside out, so that a check can rely on its parts being valid.
  void run(const ConfigStruct& value, const std::string& path) const {
    CheckVisitor inner(root_, root_key_, path);
    value.fields(inner);
    ConfigChecker checker(root_, root_key_, path);
    value.check(checker);
  }

 protected:
  void on_field(std::string_view, const ConfigField&, const FieldInfo&) override {}
  void on_section(std::string_view name, const ConfigStruct& section, std::string_view) override {
    run(section, join_key(path_, name));
  }
  void on_list(std::string_view name, const ConfigList& list, std::string_view) override {
    for (size_t i = 0; i < list.size(); ++i) {
      list.visit(i, [&](const ConfigStruct& item) { run(item, join_key(join_key(path_, name), std::to_string(i))); });
    }
  }
  void on_kinds(std::string_view, const ConfigKinds& choice, KindOptions where, const FieldInfo&) override {
    choice.visit([&](const ConfigStruct& options) {
      run(options, where == KindOptions::beside ? path_ : join_key(path_, choice.kind()));
    });
  }

 private:
  const ConfigNode& root_;
  std::string root_key_;
  std::string path_;
};

}  // namespace

std::string nearest_config_key(const std::vector<ConfigKey>& keys, std::string_view misspelt) {
  std::vector<std::string> names;  // names of keys and of the sections around them
  for (const ConfigKey& key : keys) {
    for (size_t end = key.key.find('.'); end != std::string::npos; end = key.key.find('.', end + 1)) {
      names.push_back(key.key.substr(0, end));
    }
    names.push_back(key.key);
  }
  const std::string nearest = nearest_name(names, misspelt);
  if (!nearest.empty()) return nearest;
  if (std::string called = key_called(keys, misspelt); !called.empty()) return called;
  // Among keys with the same last part, the one with the fewest parts wins.
  std::erase_if(names, [&](const auto& name) { return last_segment(name) != last_segment(misspelt); });
  const auto depth = [](const std::string& name) { return std::count(name.begin(), name.end(), '.'); };
  const auto same_last =
      std::min_element(names.begin(), names.end(), [&](const auto& a, const auto& b) { return depth(a) < depth(b); });
  return same_last == names.end() ? key_with_meaning(keys, misspelt) : *same_last;
}

ConfigStruct::~ConfigStruct() = default;
ConfigList::~ConfigList() = default;
ConfigField::~ConfigField() = default;
ConfigVisitor::~ConfigVisitor() = default;

void ConfigChecker::require(bool condition, std::string_view key, std::string_view message) const {
  if (condition) return;
  const std::string path = join_key(path_, key);
  for (std::string_view existing = path;;) {
    if (const ConfigNode* node = root_.at(existing)) {
      config_error(node->location, join_key(root_key_, path), message);
    }
    const size_t dot = existing.rfind('.');
    existing = existing.substr(0, dot == std::string_view::npos ? 0 : dot);
  }
}

void read_config(const ConfigStruct& value, const ConfigNode& node, const std::string& key, ReadMode mode,
                 const std::string& written, const std::vector<ReplacedKey>* replaced) {
  Reading reading{value, key, written, {}, replaced};
  ReadVisitor visitor(node, key, reading);
  value.fields(visitor);
  visitor.refuse_unknown();
  if (mode == ReadMode::complete && !reading.missing.empty()) {
    const Reading::Missing& first = reading.missing.front();
    config_error(first.place, first.key, "this key is required");
  }
  if (mode != ReadMode::keys) CheckVisitor(node, key, "").run(value, "");
}

}  // namespace quire
