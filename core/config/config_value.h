// The values a configuration field can hold: their types, how they are read and how they are written.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "core/config/config_node.h"

namespace quire {

// Specialise for every enum used in a configuration:
//   template <> struct EnumNames<Pack> {
//     static constexpr auto value = std::to_array<std::pair<Pack, std::string_view>>({{Pack::pad, "pad"}, ...});
//   };
// It may add what each value means, in the same order, for the reference:
//     static constexpr auto help = std::to_array<std::string_view>({"the rest of a row stays empty", ...});
// and words that people write for a value, with the name of that value:
//     static constexpr auto meant = std::to_array<std::pair<std::string_view, std::string_view>>({{"padding", "pad"}});
template <class E>
struct EnumNames;

// Returns the name of an enum value in configuration files.
template <class E>
std::string_view name_in_config(E value) {
  for (const auto& [candidate, name] : EnumNames<E>::value) {
    if (candidate == value) return name;
  }
  return "?";
}

// The largest integer of a configuration. A double represents every integer up to it, and sums of a few such values fit
// 64 bits. Fields whose products are computed have lower limits.
inline constexpr int64_t kLargestInteger = int64_t{1} << 53;

// A time span: 3h30m, 90s or a number of seconds.
struct Duration {
  int64_t seconds = 0;
  bool operator==(const Duration&) const = default;
};

struct FieldInfo {
  std::string_view help = {};
  std::string_view unit = {};
  // Limits of a number, or of every number in a list. Integers also lie within kLargestInteger on both sides.
  std::optional<double> min = {};
  std::optional<double> max = {};
  bool min_exclusive = false;     // the value must be above min
  bool resumable = false;         // may change on --resume
  bool required = false;          // has no usable default
  bool at_evaluation = false;     // may differ at evaluation, because the weights fit any value
  bool sizes_state = false;       // may change on --resume with --drop-state, because carried state would not fit
  std::string_view meant = {};    // other words that people write for the key, separated by spaces
  std::string_view at_zero = {};  // the value to suggest when somebody writes one below `min` and means "none"
  bool path = false;              // relative paths are resolved against the folder of the YAML file
  // The reason why the key has no meaning with the values of the fields before it ("only adafactor has it"); empty when
  // it has one. A key without meaning is refused when a text gives it, and left out when the configuration is written.
  std::string_view inapplicable = {};
};

// A key that has another name now. N stands for an index; an empty name: there is no such key any more.
struct ReplacedKey {
  std::string_view before;  // dotted
  std::string_view after;
  std::string_view unit;
};

// The name of a field in messages, and its rules.
struct ValueContext {
  std::string key;
  FieldInfo info;
  const std::vector<ReplacedKey>* replaced = nullptr;  // keys that have other names now, for messages
};

// Throws Error(config): "run.yaml:3:7: model.width: <message>".
[[noreturn]] void config_error(const ConfigLocation& place, std::string_view key, std::string_view message);

void read_value(const ConfigNode& node, const ValueContext& context, bool& value);
void read_value(const ConfigNode& node, const ValueContext& context, int64_t& value);
void read_value(const ConfigNode& node, const ValueContext& context, double& value);
void read_value(const ConfigNode& node, const ValueContext& context, std::string& value);
void read_value(const ConfigNode& node, const ValueContext& context, Duration& value);
// Returns the index of the choice that the node names. `meant` gives other words for the choices, which the error
// message translates.
using OtherWords = std::span<const std::pair<std::string_view, std::string_view>>;
size_t read_choice(const ConfigNode& node, const ValueContext& context, std::span<const std::string_view> choices,
                   OtherWords meant = {});
void expect_list(const ConfigNode& node, const ValueContext& context);
bool is_none(const ConfigNode& node);  // none, null, ~

ConfigNode write_value(bool value);
ConfigNode write_value(int64_t value);
ConfigNode write_value(double value);  // the shortest text that reads back as the same number
ConfigNode write_value(const std::string& value);
ConfigNode write_value(const Duration& value);  // 3h30m

template <class T>
struct IsOptional : std::false_type {};
template <class T>
struct IsOptional<std::optional<T>> : std::true_type {};
template <class T>
struct IsVector : std::false_type {};
template <class T>
struct IsVector<std::vector<T>> : std::true_type {};

template <class E>
constexpr auto choices_of() {
  std::array<std::string_view, EnumNames<E>::value.size()> names{};
  for (size_t i = 0; i < names.size(); ++i) names[i] = EnumNames<E>::value[i].second;
  return names;
}

template <class T>
void read_field(const ConfigNode& node, const ValueContext& context, T& value) {
  if constexpr (std::is_enum_v<T>) {
    OtherWords meant;
    if constexpr (requires { EnumNames<T>::meant; }) meant = EnumNames<T>::meant;
    value = EnumNames<T>::value[read_choice(node, context, choices_of<T>(), meant)].first;
  } else if constexpr (IsOptional<T>::value) {
    if (is_none(node)) {
      value.reset();
    } else {
      typename T::value_type inner{};
      read_field(node, context, inner);
      value = std::move(inner);
    }
  } else if constexpr (IsVector<T>::value) {
    expect_list(node, context);
    T items;
    for (const ConfigEntry& entry : node.entries) {
      const ValueContext item{join_key(context.key, std::to_string(items.size())), context.info};
      typename T::value_type inner{};
      read_field(entry.value, item, inner);
      items.push_back(std::move(inner));
    }
    value = std::move(items);
  } else {
    read_value(node, context, value);
  }
}

template <class T>
ConfigNode write_field(const T& value) {
  if constexpr (std::is_enum_v<T>) {
    return ConfigNode::scalar(std::string(name_in_config(value)));
  } else if constexpr (IsOptional<T>::value) {
    return value ? write_field(*value) : ConfigNode::scalar("none");
  } else if constexpr (IsVector<T>::value) {
    ConfigNode node = ConfigNode::list();
    for (const auto& item : value) node.add({}, write_field(item));
    return node;
  } else {
    return write_value(value);
  }
}

// A value of an enum, with its meaning where EnumNames gives one.
struct ConfigChoice {
  std::string name;
  std::string help;
};

// Returns the choices of an enum, also inside a list or an optional; empty for any other type.
template <class T>
std::vector<ConfigChoice> choices_of_field() {
  std::vector<ConfigChoice> choices;
  if constexpr (std::is_enum_v<T>) {
    for (size_t i = 0; i < EnumNames<T>::value.size(); ++i) {
      choices.push_back({std::string(EnumNames<T>::value[i].second), ""});
      if constexpr (requires { EnumNames<T>::help; }) {
        static_assert(EnumNames<T>::help.size() == EnumNames<T>::value.size());
        choices.back().help = EnumNames<T>::help[i];
      }
    }
  } else if constexpr (IsOptional<T>::value || IsVector<T>::value) {
    choices = choices_of_field<typename T::value_type>();
  }
  return choices;
}

// Returns the type as text: "integer", "pad | concat", "none | integer", "list of number".
template <class T>
std::string type_of_field() {
  if constexpr (std::is_enum_v<T>) {
    std::string text;
    for (const std::string_view name : choices_of<T>()) text.append(text.empty() ? "" : " | ").append(name);
    return text;
  } else if constexpr (IsOptional<T>::value) {
    return std::string("none | ").append(type_of_field<typename T::value_type>());
  } else if constexpr (IsVector<T>::value) {
    return std::string("list of ").append(type_of_field<typename T::value_type>());
  } else if constexpr (std::is_same_v<T, bool>) {
    return "true | false";
  } else if constexpr (std::is_same_v<T, int64_t>) {
    return "integer";
  } else if constexpr (std::is_same_v<T, double>) {
    return "number";
  } else if constexpr (std::is_same_v<T, Duration>) {
    return "duration";
  } else {
    static_assert(std::is_same_v<T, std::string>, "not a configuration type");
    return "text";
  }
}

}  // namespace quire
