// A configuration with every kind of field, used by the configuration tests.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"
#include "core/error.h"

namespace quire {

enum class ExampleKind { none, hidden, kv };
template <>
struct EnumNames<ExampleKind> {
  static constexpr auto value = std::to_array<std::pair<ExampleKind, std::string_view>>(
      {{ExampleKind::none, "none"}, {ExampleKind::hidden, "hidden"}, {ExampleKind::kv, "kv"}});
};

struct ExampleCache {
  ExampleKind kind = ExampleKind::none;
  std::optional<int64_t> length;
  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind, {.help = "what a layer carries"});
    v.field("length", length, {.help = "how much of it", .unit = "tokens", .min = 1});
  }
};

struct ExampleAttention {
  std::optional<int64_t> window;
  ExampleCache cache;
  template <class Visitor>
  void fields(Visitor& v) {
    v.field("window", window, {.help = "how far back a query looks", .unit = "tokens", .min = 1});
    v.section("cache", cache, "what is carried from segment to segment");
  }
  void check(ConfigChecker& c) const {
    c.require(!window || !cache.length || *cache.length <= *window, "cache.length", "must not be above window");
  }
};

struct ExampleMemory {
  std::string kind;
  int64_t size = 8192;
  std::vector<int64_t> layers{-2};
  template <class Visitor>
  void fields(Visitor& v) {
    v.field("kind", kind, {.help = "the mechanism", .required = true});
    v.field("size", size, {.help = "pairs per head", .min = 1, .max = 1000000});
    v.field("layers", layers, {.help = "layers that read it"});
  }
};

struct ExampleLayer {
  ExampleAttention attention;
  std::string position = "xl";
  template <class Visitor>
  void fields(Visitor& v) {
    v.section("attention", attention, "");
    v.field("position", position, {.help = "position term"});
  }
};

struct ExampleModel {
  int64_t width = 256;
  ExampleAttention attention;
  std::vector<ExampleMemory> memory;
  std::vector<ConfigOverlay> layer_overrides;
  template <class Visitor>
  void fields(Visitor& v) {
    v.field("width", width, {.help = "model width", .min = 1});
    v.section("attention", attention, "");
    v.list("memory", memory, "memories");
    v.overlay("layer_overrides", layer_overrides, ExampleLayer{}, "settings of single layers");
  }
};

struct ExampleRun {
  std::string corpus;
  std::string name = "example";
  std::optional<std::string> from;
  bool tied = true;
  double lr = 5e-4;
  std::optional<double> clip = 1.0;
  std::vector<double> betas{0.9, 0.95};
  std::vector<std::string> tags;
  int64_t every = 500;
  ConfigSettings set;
  ExampleModel model;
  template <class Visitor>
  void fields(Visitor& v) {
    v.field("corpus", corpus, {.help = "the corpus", .required = true, .path = true});
    v.field("name", name, {.help = "the name"});
    v.field("from", from, {.help = "a checkpoint", .path = true});
    v.field("tied", tied, {.help = "one embedding"});
    v.field("lr", lr, {.help = "peak learning rate", .min = 0, .min_exclusive = true});
    v.field("clip", clip, {.help = "norm of the gradient", .min = 0});
    v.field("betas", betas, {.help = "decay rates", .min = 0, .max = 1});
    v.field("tags", tags, {.help = "notes"});
    v.field("every", every, {.help = "how often", .unit = "steps", .min = 1, .resumable = true});
    v.map("set", set, {.help = "what differs at evaluation", .resumable = true});
    v.section("model", model, "the model");
  }
};

// The message of the Error(config) that `work` throws; a test failure otherwise.
template <class Work>
std::string config_message(Work&& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.kind() == ErrorKind::config ? error.what() : std::string("other kind: ") + error.what();
  }
  return "no error";
}

inline ExampleRun example(std::string_view text, const std::vector<std::string>& overrides = {}) {
  return parse_config<ExampleRun>(text, "run.yaml", overrides);
}

inline std::string example_error(std::string_view text, const std::vector<std::string>& overrides = {}) {
  return config_message([&] { example(text, overrides); });
}

}  // namespace quire
