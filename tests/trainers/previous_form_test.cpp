// Files of the previous version: what their keys become, that layout and comments stay, and what is refused.
#include "trainers/setup/previous_form.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "tests/support/expect_error.h"

namespace quire::test {
namespace {

struct Pair {
  std::string before;
  std::string after;
};

const std::vector<Pair>& pairs() {
  static const std::vector<Pair> all{
      // On lines of their own, with comments.
      {R"(# A run.
run: {name: a}  # the name

model:
  width: 32
  # How far a token is from another.
  position: rope  # rotary
  attention:
    # What a token sees.
    window: 512  # tokens
    qk_norm: true
    cache:   {kind: kv, length: 512}
    mask_empty_cache: false

    rope: {base: 500, dims: 4}
    token_shift: 0.5
# The end.
)",
       R"(# A run.
run: {name: a}  # the name

model:
  width: 32
  # How far a token is from another.
  position: {kind: rope, rope: {base: 500, dims: 4}}  # rotary
  attention:
    softmax:
      # What a token sees.
      window: 512  # tokens
      qk_norm: true
      carry:   {kind: kv, length: 512, mask_empty: false}
    shifted_share: 0.5
# The end.
)"},
      // A section with a comment keeps it, on lines of its own.
      {"model:\n  position: xl\n  attention:\n    # unlimited\n    xl: {clamp: 0}  # as published\n",
       "model:\n  position:\n    kind: xl\n    # unlimited\n    xl: {clamp: 0}  # as published\n"},
      {"model:\n  position: xl\n  attention:\n    xl:\n      clamp: 5  # tokens\n    window: 3\n",
       "model:\n  position:\n    kind: xl\n    xl:\n      clamp: 5  # tokens\n  attention:\n    softmax:\n      "
       "window: "
       "3\n"},
      // On one line, and the last line without its end.
      {"model: {position: t5, attention: {t5: {buckets: 8}, window: 4, attend_self: false, implementation: auto}}",
       "model: {position: {kind: t5, t5: {buckets: 8}}, attention: {softmax: {window: 4, attend_self: false, "
       "implementation: auto}}}"},
      {"model:\n  attention: {same_length: true, token_shift: 0.5, cache: {kind: hidden, length: 8,\n"
       "    dtype: bf16}}",
       "model:\n  attention: {softmax: {same_length: true, carry: {kind: hidden, length: 8,\n    dtype: bf16}}, "
       "shifted_share: 0.5}"},
      // A comment inside a section on several lines stays there.
      {"model:\n  attention: {cache: {kind: kv},\n    # why\n    mask_empty_cache: false}\n",
       "model:\n  attention: {softmax: {carry: {kind: kv, mask_empty: false}}\n    # why\n    }\n"},
      {"model:\n  position: xl\n  # what is seen\n  attention:  # nothing more\n    xl: {clamp: 3}\n",
       "model:\n  position: {kind: xl, xl: {clamp: 3}}\n  # what is seen\n  attention: {}  # nothing more\n"},
      // Without the end of the last line.
      {"model:\n  attention:\n    # far\n    window: 3  # tokens",
       "model:\n  attention:\n    softmax:\n      # far\n      window: 3  # tokens\n"},
      // Comments behind the last key stay where they are.
      {"model:\n  position: rope\n  attention:\n    rope: {base: 500}\n\n  # the end\n# of it\n",
       "model:\n  position: {kind: rope, rope: {base: 500}}\n\n  # the end\n# of it\n"},
      // Options of positions that are not chosen had no effect.
      {"model:\n  position: none\n  attention: {rope: {base: 500}}\n", "model:\n  position: {kind: none}\n"},
      // Other mixers: a window of their own, and no options of softmax.
      {"model:\n  attention: {kind: vq, window: 24, cache: {kind: none, length: none}, vq: {cache: false, "
       "through_cache: false}}\n",
       "model:\n  attention: {kind: vq, vq: {compressive_cache: false, cache_gradient: false, window: 24}}\n"},
      {"model:\n  attention:\n    kind: vq\n    window: 24\n    vq:\n      codes: 4\n",
       "model:\n  attention:\n    kind: vq\n    vq:\n      codes: 4\n      window: 24\n"},
      {"model:\n  position: rope\n  attention: {kind: landmark, implementation: own, landmark: {block: 5, capacity: 7, "
       "place: file, top_k: 2, dtype: bf16, retrieve: true}}\n",
       "model:\n  position: {kind: rope}\n  attention: {kind: landmark, landmark: {block: 5, carry: {length: 7, place: "
       "file, dtype: bf16, in_training: true}, top_k: 2}}\n"},
      {"model:\n  attention: {kind: moba, moba: {block: 8, capacity: 7, carry: true, place: host, dtype: f32}}\n",
       "model:\n  attention: {kind: moba, moba: {block: 8, carry: {length: 7, place: host, dtype: f32}}}\n"},
      {"model:\n  attention: {kind: moba, moba: {capacity: 7, carry: false}}\n",
       "model:\n  attention: {kind: moba, moba: {max_distance: 7, carry: {length: 0}}}\n"},
      {"model:\n  attention: {kind: moba, moba: {carry: false}}\n",
       "model:\n  attention: {kind: moba, moba: {max_distance: 1280, carry: {length: 0}}}\n"},
      {"model:\n  stack:\n    kind: drt\n    drt:\n      chunk: 16\n      carry: false  # as published\n      "
       "capacity: "
       "40\n      place: host\n      dtype: bf16\n",
       "model:\n  stack:\n    kind: drt\n    drt:\n      chunk: 16\n      carry:\n        in_training: false  # as "
       "published\n        length: 40\n        place: host\n        dtype: bf16\n"},
      {"model:\n  memory:\n    # one\n    - kind: knn\n      size: 9  # small\n      layers: [1]\n      place: host\n"
       "    - {layers: [0], kind: knn, dtype: int8}\n",
       "model:\n  memory:\n    # one\n    - kind: knn\n      carry:\n        length: 9  # small\n        place: host\n"
       "      layers: [1]\n    - {layers: [0], kind: knn, carry: {dtype: int8}}\n"},
      {"model: {memory: [{kind: knn, layers: [0], size: 9}]}\n",
       "model: {memory: [{kind: knn, layers: [0], carry: {length: 9}}]}\n"},
      // An override of a layer says what another kind no longer takes from the model.
      {"model:\n  layers: 3\n  attention: {window: 40, cache: {kind: kv}}\n  layer_overrides:\n    - {layers: [0], "
       "attention: {kind: moba, window: none, cache: {kind: none, length: none}}}\n    - {layers: [-1], attention: "
       "{cache: {length: 30}}}\n",
       "model:\n  layers: 3\n  attention: {softmax: {window: 40, carry: {kind: kv}}}\n  layer_overrides:\n    - "
       "{layers: [0], attention: {kind: moba}}\n    - {layers: [-1], attention: {softmax: {carry: {length: 30}}}}\n"},
      {"model:\n  attention: {window: 40}\n  layer_overrides: [{layers: [0], attention: {kind: vq}}]\n",
       "model:\n  attention: {softmax: {window: 40}}\n  layer_overrides: [{layers: [0], attention: {kind: vq, vq: "
       "{window: 40}}}]\n"},
      {"model:\n  position: xl\n  attention: {kind: vq, window: 40, rope: {base: 5}}\n  layer_overrides: [{layers: "
       "[0], position: rope, attention: {kind: softmax}}]\n",
       "model:\n  position: {kind: xl}\n  attention: {kind: vq, vq: {window: 40}}\n  layer_overrides: [{layers: [0], "
       "position: {kind: rope, rope: {base: 5}}, attention: {kind: softmax, softmax: {window: 40}}}]\n"},
      // The keys of evaluate.set.
      {"model:\n  position: xl\n  attention: {cache: {kind: hidden, length: 8}}\n  memory: [{kind: knn, layers: [0]}]\n"
       "evaluate:\n  set:\n    # longer\n    model.attention.cache.length: 20\n    model.attention.xl.clamp: 5\n    "
       "model.memory.0.size: 7\n    data.subsequence: 9\n",
       "model:\n  position: {kind: xl}\n  attention: {softmax: {carry: {kind: hidden, length: 8}}}\n  memory: [{kind: "
       "knn, layers: [0]}]\nevaluate:\n  set:\n    # longer\n    model.attention.softmax.carry.length: 20\n    "
       "model.position.xl.clamp: 5\n    model.memory.0.carry.length: 7\n    data.subsequence: 9\n"},
      {"model: {attention: {kind: vq, window: 4}}\nevaluate: {set: {model.attention.window: 2, "
       "model.attention.vq.cache: false}}\n",
       "model: {attention: {kind: vq, vq: {window: 4}}}\nevaluate: {set: {model.attention.vq.window: 2, "
       "model.attention.vq.compressive_cache: false}}\n"},
      // Keys that are gone.
      {"run:\n  name: a\n  graphs: true\n  products: measured  # timed\nlog: {every: 5}\n",
       "run:\n  name: a\nlog: {every: 5}\n"},
  };
  return all;
}

RunConfig parsed(const std::string& text) {
  return parse_config<RunConfig>(text, "run.yaml");
}

TEST(PreviousForm, IsRewrittenInPlace) {
  for (const Pair& pair : pairs()) {
    const std::optional<UpgradedText> upgraded = upgraded_configuration(pair.before, "run.yaml");
    ASSERT_TRUE(upgraded) << pair.before;
    EXPECT_EQ(upgraded->text, pair.after) << pair.before;
    EXPECT_FALSE(upgraded->changes.empty());
    RunConfig config;
    EXPECT_NO_THROW(
        read_config(StructRef<RunConfig>(config), parse_yaml(upgraded->text, "new.yaml"), "", ReadMode::keys))
        << upgraded->text;
    // The written text is in the form of this version.
    EXPECT_FALSE(upgraded_configuration(upgraded->text, "run.yaml")) << upgraded->text;
  }
}

TEST(PreviousForm, TheFormOfThisVersionIsLeftAlone) {
  for (const char* text : {"", "run: {name: a}\n", "model: {position: {kind: rope}}\n",
                           "model:\n  stack: {kind: drt, drt: {carry: {length: 5}}}\n",
                           "evaluate: {set: {model.stack.drt.carry.length: 5}}\n",
                           "model:\n  width:\n    32\n  attention:\n    softmax: {window: 3}\n"}) {
    EXPECT_FALSE(upgraded_configuration(text, "run.yaml")) << text;
  }
  EXPECT_FALSE(upgraded_configuration(saved_configuration(dump_config_minimal(
                                          parsed("model: {position: {kind: t5}, memory: [{kind: knn, layers: [0]}]}"))),
                                      "run.yaml"));
}

TEST(PreviousForm, WhatCannotBeConvertedIsSaid) {
  const std::pair<const char*, const char*> refused[] = {
      {"model:\n  attention: {cache: {kind: kv}}\n  layers:\n    3\n  head_size: &a 4\n", "anchors"},
      {"model:\n  position: rope\n  attention: {\n    # why\n    rope: {base: 5}}\n",
       "line 3: a comment in attention has no place"},
      {"model:\n  attention: {window: 4}\nevaluate: {set: {model.attention: {window: 3}}}\n",
       "run.yaml:3: evaluate.set: model.attention holds a section"},
      {"model:\n  attention: {kind: moba, moba: {carry: false}}\nevaluate: {set: {model.attention.moba.carry: true}}\n",
       "turns on what training had off"},
      {"model:\n  attention: {kind: moba, moba: {carry: false}}\n  layer_overrides: [{layers: [0], attention: {moba: "
       "{carry: true}}}]\n",
       "turns on again"},
      {"model:\n  attention: {kind: vq}\n  layer_overrides: [{layers: [0], attention: {window: 3}}, {layers: [0, 1], "
       "attention: {kind: softmax}}]\n",
       "other overrides have made these layers different"},
  };
  for (const auto& [text, message] : refused) {
    EXPECT_ERROR(upgraded_configuration(text, "run.yaml"), ErrorKind::config, message);
  }
}

// A text that has the key of a row, where its kind is chosen.
std::string text_with(const PreviousKey& row) {
  const std::vector<std::string> parts = key_segments(row.before);
  const auto [choice, kind] = chosen_for(row);
  std::string value = row.unit.empty() ? "true" : row.unit.starts_with("share") ? "0.5" : "3";
  for (const char* name : {"kind", "place", "dtype", "implementation"}) {
    if (parts.back() == name)
      value = std::string(name) == "kind" ? "kv" : std::string(name) == "place" ? "host" : "f32";
  }
  if (parts.back() == "implementation") value = "auto";
  if (row.change == KeyChange::into_section) value = "rope";
  if (row.change == KeyChange::carries) value = "false";
  if (row.before == "model.attention.cache") value = "{kind: kv, length: 3}";
  for (const char* section : {"xl", "t5", "rope"}) {
    if (parts.back() == section) value = "{}";
  }
  if (row.change == KeyChange::removed) return "run: {" + parts[1] + ": " + value + "}\n";
  std::string inner = parts.back() + ": " + value;
  for (size_t i = parts.size() - 1; i-- > 1;) {
    const std::string& part = parts[i];
    if (part == "N") {
      inner = "[{kind: " + std::string(row.kind) + ", layers: [0], " + inner + "}]";
      continue;
    }
    const bool named = i + 2 == parts.size() && i == 2 && part != "cache";  // the section of a kind
    inner = part + ": " + (inner.front() == '[' ? inner : "{" + inner + "}");
    if (named) inner = "kind: " + part + ", " + inner;
  }
  if (choice == "attention.kind") {
    const size_t at = inner.find('{') + 1;
    inner.insert(at, "kind: " + kind + ", ");
  }
  if (choice == "position") inner += ", position: " + kind;
  return "model: {" + inner + "}\n";
}

TEST(PreviousForm, EveryRowIsConvertedAndRefusedByName) {
  for (const PreviousKey& row : kPreviousKeys) {
    const std::string text = text_with(row);
    const std::optional<UpgradedText> upgraded = upgraded_configuration(text, "run.yaml");
    ASSERT_TRUE(upgraded) << text;
    // The keys of a section move with it.
    const size_t section = row.before.find(".cache.");
    const std::string name = without_model(section == std::string_view::npos ? row.before : "model.attention.cache");
    const auto names = [&](const std::string& change) { return change.find(name) != std::string::npos; };
    EXPECT_TRUE(std::any_of(upgraded->changes.begin(), upgraded->changes.end(), names)) << text;
    if (row.change == KeyChange::removed) continue;
    RunConfig config;
    EXPECT_NO_THROW(
        read_config(StructRef<RunConfig>(config), parse_yaml(upgraded->text, "new.yaml"), "", ReadMode::keys))
        << text << upgraded->text;
    // Without the others of the text.
    const std::string said = describe_replaced_key(replaced_keys(), row.before);
    EXPECT_NE(said.find(row.after), std::string::npos) << said;
    EXPECT_NE(said.find(row.unit), std::string::npos) << said;
    EXPECT_NE(said.find("quire config --upgrade FILE"), std::string::npos) << said;
    EXPECT_ERROR(parsed(text), ErrorKind::config, "is a key of the previous version; ");
  }
}

TEST(PreviousForm, KeysAreRefusedWhereTheyStand) {
  EXPECT_ERROR(parsed("model:\n  position: rope\n"), ErrorKind::config,
               "run.yaml:2:13: model.position: is a key of the previous version; it is model.position.kind now. `quire "
               "config --upgrade FILE` rewrites a file");
  EXPECT_ERROR(parsed("model:\n  attention: {window: 4}\n"), ErrorKind::config,
               "model.attention.softmax.window (tokens) or model.attention.vq.window (tokens) now");
  EXPECT_ERROR(parsed("model:\n  layer_overrides: [{layers: [0], attention: {cache: {kind: kv}}}]\n"),
               ErrorKind::config, "run.yaml:2:47: model.layer_overrides.0.attention.cache: is a key of the previous");
  EXPECT_ERROR(with_overrides(RunConfig{}, {"model.attention.qk_norm=true"}), ErrorKind::config,
               "it is model.attention.softmax.qk_norm now");
  EXPECT_ERROR(parsed("evaluate: {set: {model.attention.cache.length: 4}}\n"), ErrorKind::config,
               "model.attention.cache.length is a key of the previous version; it is "
               "model.attention.softmax.carry.length (tokens) now");
}

// A run's own file, as the previous version wrote it, reads as its values said.
TEST(PreviousForm, AWrittenConfigurationIsRead) {
  const std::string text = saved_configuration(
      "model:\n  layers: 2\n  position: rope\n  attention:\n    kind: softmax\n    window: 40\n    same_length: false\n"
      "    attend_self: true\n    qk_norm: false\n    mask_empty_cache: true\n    implementation: own\n    "
      "token_shift: "
      "0\n    cache:\n      kind: kv\n      length: none\n      dtype: bf16\n    xl:\n      share_biases: true\n      "
      "clamp: 0\n      base: 10000\n    t5:\n      buckets: 32\n      max_distance: 128\n    rope:\n      base: 10000\n"
      "      dims: 8\n      layout: interleaved\n  memory: []\n");
  const RunConfig config = read_written_config(text, "config.yaml");
  const RunConfig expected = parsed(
      "model:\n  layers: 2\n  position: {kind: rope, rope: {dims: 8, layout: interleaved}}\n  attention: {softmax: "
      "{window: 40, carry: {kind: kv, dtype: bf16}}}\n");
  EXPECT_EQ(dump_config(config), dump_config(expected));
  EXPECT_TRUE(was_edited(text + "# more\n"));
  EXPECT_FALSE(was_edited(resealed(text + "# more\n")));
}

}  // namespace
}  // namespace quire::test
