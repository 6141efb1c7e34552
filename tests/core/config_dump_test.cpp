#include <gtest/gtest.h>

#include "core/config/config.h"
#include "tests/core/config_example.h"

namespace quire {
namespace {

TEST(ConfigDump, FullTextReadsBackAsTheSame) {
  ExampleRun run = example(R"(corpus: /a/books.h5
set: {model.memory.0.size: 16, x: [1, "two words"]}
model:
  memory: [{kind: knn}, {kind: vq, layers: []}]
  layer_overrides: [{layers: [0, -1], attention: {window: 3}, position: none}]
)");
  run.lr = 0.1 + 0.2;
  run.tags = {"none",      "true", "12", "",    " padded", "a: b # c", "quote\"\\", "line\nbreak\ttab",
              "caf\u00e9", "-",    "~",  "1e5", "\x01",    "[x"};
  run.from = "none";
  const std::string text = dump_config(run);
  const ExampleRun again = parse_config<ExampleRun>(text, "dump");
  EXPECT_EQ(dump_config(again), text);
  EXPECT_EQ(again.tags, run.tags);
  EXPECT_EQ(again.lr, run.lr);
  EXPECT_EQ(again.from, "none");
  EXPECT_EQ(again.set, run.set);
  EXPECT_TRUE(diff_configs(run, again).empty());
}

TEST(ConfigDump, HasEveryKeyInListingOrder) {
  EXPECT_EQ(dump_config(example("corpus: a\nmodel: {memory: [{kind: knn}]}\n")), R"(corpus: a
name: example
from: none
tied: true
lr: 0.0005
clip: 1
betas: [0.9, 0.95]
tags: []
every: 500
set: {}
model:
  width: 256
  attention:
    window: none
    cache:
      kind: none
      length: none
  memory:
    - kind: knn
      size: 8192
      layers: [-2]
  layer_overrides: []
)");
}

TEST(ConfigDump, MinimalHasOnlyWhatDiffers) {
  EXPECT_EQ(dump_config_minimal(example("corpus: a\nname: example\n")), "corpus: a\n");
  EXPECT_EQ(dump_config_minimal(example("corpus: a\nmodel: {attention: {cache: {kind: kv}}, memory: [{kind: k}]}\n")),
            "corpus: a\nmodel:\n  attention:\n    cache:\n      kind: kv\n  memory:\n    - kind: k\n");
}

TEST(ConfigDiff, NamesKeysAndWhetherTheyMayChange) {
  const ExampleRun before = example("corpus: a\n");
  const ExampleRun after = with_overrides(before, {"every=3", "model.width=5", "model.memory=[{kind: knn}]"});
  const auto differences = diff_configs(before, after);
  ASSERT_EQ(differences.size(), 5U);
  EXPECT_EQ(differences[0].key, "every");
  EXPECT_EQ(differences[0].before, "500");
  EXPECT_EQ(differences[0].after, "3");
  EXPECT_TRUE(differences[0].resumable);
  EXPECT_EQ(differences[1].key, "model.width");
  EXPECT_FALSE(differences[1].resumable);
  EXPECT_EQ(differences[2].key, "model.memory.0.kind");
  EXPECT_EQ(config_message([&] {
              require_resumable({differences[0], differences[1]});
            }),
            "cannot change on --resume: model.width (was 256, now 5); start a new run for that");
  EXPECT_NO_THROW(require_resumable({differences[0]}));
}

TEST(ConfigOverlay, ChangesOnlyWhatItGives) {
  const ExampleRun run = example(R"(corpus: a
model:
  layer_overrides:
    - {layers: [0, -1], attention: {window: 128}}
)");
  ASSERT_EQ(run.model.layer_overrides.size(), 1U);
  const ConfigOverlay& overlay = run.model.layer_overrides[0];
  EXPECT_EQ(overlay.layers, (std::vector<int64_t>{0, -1}));
  ExampleLayer base;
  base.position = "t5";
  base.attention.cache = {ExampleKind::kv, 64};
  const ExampleLayer layer = apply_overlay(base, overlay);
  EXPECT_EQ(layer.position, "t5");
  EXPECT_EQ(layer.attention.window, 128);
  EXPECT_EQ(layer.attention.cache.length, 64);
  // The contradiction arises only with this base, and points into the file.
  base.attention.cache.length = 256;
  EXPECT_EQ(config_message([&] { apply_overlay(base, overlay); }),
            "run.yaml:4:36: model.layer_overrides.0.attention.cache.length: must not be above window");
}

TEST(ConfigOverlay, EntriesAreCheckedWhenRead) {
  const auto error = [](const std::string& entry) {
    return example_error("corpus: a\nmodel:\n  layer_overrides: [" + entry + "]\n");
  };
  EXPECT_EQ(error("{layers: [0], positon: t5}"),
            "run.yaml:3:35: model.layer_overrides.0.positon: unknown key; did you mean "
            "model.layer_overrides.0.position?");
  EXPECT_EQ(error("{position: t5}"),
            "run.yaml:3:21: model.layer_overrides.0: expects {layers: [0, 1], key: value, ...}");
  EXPECT_EQ(error("{layers: 0, position: t5}"),
            "run.yaml:3:30: model.layer_overrides.0.layers: expects a list such as [a, b], got '0'");
  EXPECT_EQ(error("{layers: [0], attention: {window: 0}}"),
            "run.yaml:3:55: model.layer_overrides.0.attention.window: must be at least 1, got 0");
}

TEST(ConfigKeys, ListTypeDefaultAndRange) {
  const auto keys = list_config_keys<ExampleRun>();
  const auto find = [&](const std::string& name) {
    for (const ConfigKey& key : keys) {
      if (key.key == name) return key;
    }
    ADD_FAILURE() << name;
    return ConfigKey{};
  };
  EXPECT_TRUE(find("corpus").required);
  EXPECT_EQ(find("model.attention.cache.kind").type, "none | hidden | kv");
  EXPECT_EQ(find("model.attention.cache.length").type, "none | integer");
  EXPECT_EQ(find("model.attention.cache.length").unit, "tokens");
  EXPECT_EQ(find("model.memory.N.size").range, "1 to 1000000");
  EXPECT_EQ(find("lr").range, "above 0");
  EXPECT_EQ(find("betas").default_value, "[0.9, 0.95]");
  EXPECT_NE(format_config_keys(keys).find("every: integer, at least 1, in steps, default 500, may change on --resume\n"
                                          "    how often\n"),
            std::string::npos);
}

TEST(ConfigSettings, ApplyAsOverridesOfTheWholeConfiguration) {
  const ExampleRun run = example("corpus: a\nset: {model.width: 16, lr: 1}\nmodel: {memory: [{kind: k}]}\n");
  EXPECT_EQ(with_overrides(run, settings_as_overrides(run.set), "set").model.width, 16);
  EXPECT_EQ(config_message([&] { with_overrides(run, {"model.wdth=1"}, "evaluate.set"); }),
            "evaluate.set: model.wdth=1: model.wdth: unknown key; did you mean model.width?");
}

}  // namespace
}  // namespace quire
