#include "trainers/exchange/rope_settings.h"

#include <algorithm>
#include <cmath>

#include "core/check.h"

namespace quire {

namespace {

using Json = nlohmann::json;

struct Kind {
  const char* name;
  std::vector<const char*> required;
  std::vector<const char*> optional;
};

// The options of each kind under their names in config.json.
const std::vector<Kind>& kinds() {
  static const std::vector<Kind> all{
      {"default", {}, {}},
      {"linear", {"factor"}, {}},
      {"dynamic", {"factor"}, {"original_max_position_embeddings"}},
      {"llama3", {"factor", "low_freq_factor", "high_freq_factor", "original_max_position_embeddings"}, {}},
      {"yarn",
       {},
       {"factor", "original_max_position_embeddings", "attention_factor", "beta_fast", "beta_slow", "truncate",
        "mscale", "mscale_all_dim"}},
      {"longrope", {"short_factor", "long_factor"}, {"factor", "original_max_position_embeddings", "attention_factor"}},
  };
  return all;
}

// Options of every kind that stand beside it.
bool is_common(const std::string& option) {
  return option == "rope_type" || option == "type" || option == "rope_theta" || option == "partial_rotary_factor" ||
         option == "finetuned";
}

bool contains(const std::vector<const char*>& list, const std::string& text) {
  return std::find(list.begin(), list.end(), text) != list.end();
}

std::optional<double> number_in(const HfConfig& config, const std::string& where, const Json& object,
                                const char* option) {
  if (!object.contains(option) || object.at(option).is_null()) return std::nullopt;
  const Json& value = object.at(option);
  if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0) {
    config.refuse(where, fmt::format("{} is no number of at least 0", option));
  }
  return value.get<double>();
}

const Kind& kind_in(const HfConfig& config, const std::string& where, const Json& object) {
  std::string name;
  for (const char* key : {"rope_type", "type"}) {
    if (!object.contains(key) || object.at(key).is_null()) continue;
    if (!object.at(key).is_string()) config.refuse(where, fmt::format("{} is not a text", key));
    const auto said = object.at(key).get<std::string>();
    if (!name.empty() && said != name) config.refuse(where, "type and rope_type differ");
    name = said;
  }
  if (name == "su") name = "longrope";
  if (name.empty()) name = "default";
  for (const Kind& kind : kinds()) {
    if (name == kind.name) return kind;
  }
  config.refuse(where, fmt::format("{} is no kind of rotary scaling that quire has: default, linear, dynamic, llama3, "
                                   "yarn, longrope",
                                   name));
}

void require_option(const HfConfig& config, const std::string& where, const std::string& option, const Json& value,
                    size_t max_factors = 1 << 16) {
  if (option == "truncate") {
    if (!value.is_boolean()) config.refuse(where, "truncate is neither true nor false");
    return;
  }
  const auto is_number = [](const Json& one) {
    return one.is_number() && std::isfinite(one.get<double>()) && one.get<double>() > 0;
  };
  if (option == "mscale" || option == "mscale_all_dim") {
    if (!value.is_number() || !(value.get<double>() >= 0)) {
      config.refuse(where, fmt::format("{} is no number of at least 0", option));
    }
    return;
  }
  if (option != "short_factor" && option != "long_factor") {
    if (!is_number(value)) config.refuse(where, fmt::format("{} is no number above 0", option));
    return;
  }
  if (!value.is_array() || value.size() > max_factors || !std::all_of(value.begin(), value.end(), is_number)) {
    config.refuse(where, fmt::format("{} is no list of numbers above 0", option));
  }
}

// Reads kind and options of a dictionary into the settings.
void read_kind(const HfConfig& config, const std::string& where, const Json& object, RopeSettings& rope) {
  if (!object.is_object()) config.refuse(where, "is no object");
  const Kind& kind = kind_in(config, where, object);
  rope.kind = kind.name;
  for (const auto& [option, value] : object.items()) {
    if (value.is_null() || is_common(option)) continue;
    if (!contains(kind.required, option) && !contains(kind.optional, option)) {
      config.refuse(where, fmt::format("{} is no option of {} that quire has", option, rope.kind));
    }
    require_option(config, where, option, value);
    rope.options[option] = value;
  }
  for (const char* option : kind.required) {
    if (!rope.options.contains(option)) config.refuse(where, fmt::format("{} needs {}", rope.kind, option));
  }
}

// One value that up to three keys give. Throws where they differ.
class OneValue {
 public:
  explicit OneValue(const HfConfig& config) : config_(config) {}
  void add(const std::string& key, const std::optional<double>& value) {
    if (!value) return;
    if (value_ && *value_ != *value) {
      config_.refuse(key, fmt::format("gives {}, and {} gives {}; the two forms of rope settings contradict each other",
                                      *value, key_, *value_));
    }
    value_ = value;
    key_ = key;
  }
  double or_else(double otherwise) const { return value_.value_or(otherwise); }

 private:
  const HfConfig& config_;
  std::optional<double> value_;
  std::string key_;
};

// The dictionary of transformers 5 for a type of layers; nullptr without it.
const Json* parameters_of(HfConfig& config, const std::string& layer_type) {
  const Json* all = config.find("rope_parameters");
  if (all == nullptr) return nullptr;
  if (!all->is_object()) config.refuse("rope_parameters", "is no object");
  const bool nested = std::any_of(all->begin(), all->end(), [](const Json& value) { return value.is_object(); });
  if (!nested) return all;
  if (layer_type.empty()) {
    config.refuse("rope_parameters", "is nested by types of layers, which this architecture does not have");
  }
  for (const auto& [type, value] : all->items()) {
    if (type != "full_attention" && type != "sliding_attention") {
      config.refuse("rope_parameters", fmt::format("{} is no type of layers that quire has", type));
    }
    if (!value.is_object()) config.refuse("rope_parameters", fmt::format("{} is no object", type));
  }
  if (!all->contains(layer_type)) config.refuse("rope_parameters", fmt::format("has no {}", layer_type));
  return &all->at(layer_type);
}

std::string in_flow(const Json& value) {
  if (value.is_number_float()) return fmt::format("{}", value.get<double>());
  return value.dump();
}

}  // namespace

RopeSettings read_rope(HfConfig& config, const RopeDefaults& defaults, const std::string& layer_type) {
  RopeSettings rope;
  OneValue theta(config), partial(config);
  for (const char* key : {defaults.theta_key, defaults.other_theta_key}) {
    if (key != nullptr) theta.add(key, config.number(key, 0));
  }
  for (const char* key : {defaults.partial_key, defaults.other_partial_key}) {
    if (key != nullptr) partial.add(key, config.number(key, 0));
  }
  const Json* scaling = defaults.scaled ? config.find("rope_scaling") : nullptr;
  if (scaling != nullptr) {
    read_kind(config, "rope_scaling", *scaling, rope);
    theta.add("rope_scaling", number_in(config, "rope_scaling", *scaling, "rope_theta"));
    partial.add("rope_scaling", number_in(config, "rope_scaling", *scaling, "partial_rotary_factor"));
  }
  if (const Json* parameters = parameters_of(config, layer_type)) {
    RopeSettings other;
    read_kind(config, "rope_parameters", *parameters, other);
    theta.add("rope_parameters", number_in(config, "rope_parameters", *parameters, "rope_theta"));
    partial.add("rope_parameters", number_in(config, "rope_parameters", *parameters, "partial_rotary_factor"));
    if (scaling != nullptr && (rope.kind != other.kind || rope.options != other.options)) {
      config.refuse("rope_parameters", "and rope_scaling contradict each other");
    }
    rope = other;
  }
  rope.theta = theta.or_else(defaults.theta);
  rope.partial = partial.or_else(defaults.partial);
  if (rope.theta <= 1) config.refuse(defaults.theta_key, "the base of rotary positions must be above 1");
  if (rope.partial <= 0 || rope.partial > 1)
    config.refuse("rope_parameters", "partial_rotary_factor must be above 0 and at most 1");
  if (rope.partial != 1 && !defaults.may_be_partial) {
    config.refuse("rope_parameters", "partial_rotary_factor must be 1 in this architecture");
  }
  return rope;
}

std::string rope_keys(HfConfig& config, const RopeSettings& rope, int64_t head_size, int64_t max_positions,
                      int64_t length) {
  std::string keys = fmt::format("base: {}", rope.theta);
  const auto dims = static_cast<int64_t>(static_cast<double>(head_size) * rope.partial);
  if (rope.partial != 1) keys += fmt::format(", dims: {}", dims);
  if (rope.kind == "default") return "{" + keys + "}";
  const auto option = [&](const char* name) {
    const auto found = rope.options.find(name);
    return found == rope.options.end() ? nullptr : &found->second;
  };
  // Outside the dictionary it wins (Phi-3).
  std::optional<int64_t> original = config.integer("original_max_position_embeddings", 1);
  if (!original) {
    const Json* inside = option("original_max_position_embeddings");
    original = inside != nullptr ? static_cast<int64_t>(inside->get<double>()) : max_positions;
  }
  std::string scaling = "kind: " + rope.kind;
  const auto add = [&](const char* key, const std::string& value) { scaling += fmt::format(", {}: {}", key, value); };
  const auto add_option = [&](const char* key, const char* name) {
    if (const Json* value = option(name)) add(key, in_flow(*value));
  };
  if (option("factor") != nullptr) {
    add_option("factor", "factor");
  } else if (rope.kind == "yarn" || rope.kind == "longrope") {
    add("factor", fmt::format("{}", static_cast<double>(max_positions) / static_cast<double>(*original)));
  }
  if (rope.kind == "dynamic") {
    if (*original != max_positions) {
      config.refuse("original_max_position_embeddings",
                    "of dynamic scaling differs from max_position_embeddings, which transformers takes");
    }
    add("length", fmt::format("{}", std::max(length, max_positions)));
  }
  if (rope.kind == "longrope") add("length", fmt::format("{}", length));
  if (rope.kind != "linear") add("original_length", fmt::format("{}", *original));
  add_option("low_frequency_factor", "low_freq_factor");
  add_option("high_frequency_factor", "high_freq_factor");
  add_option("beta_fast", "beta_fast");
  add_option("beta_slow", "beta_slow");
  add_option("truncate", "truncate");
  add_option("attention_factor", "attention_factor");
  // One of the two alone, or 0, says nothing, and attention_factor wins over both.
  const auto is_set = [&](const char* name) { return option(name) != nullptr && option(name)->get<double>() != 0; };
  if (option("attention_factor") == nullptr && is_set("mscale") && is_set("mscale_all_dim")) {
    add_option("mscale", "mscale");
    add_option("mscale_all_dim", "mscale_all_dim");
  }
  add_option("short_factors", "short_factor");
  add_option("long_factors", "long_factor");
  return fmt::format("{{{}, scaling: {{{}}}}}", keys, scaling);
}

}  // namespace quire
