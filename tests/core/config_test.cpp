#include "core/config/config.h"

#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>

#include "tests/core/config_example.h"

namespace quire {
namespace {

TEST(Config, ReadsEveryKindOfField) {
  const ExampleRun run = example(R"(# a comment
corpus: books.h5
name: "a: name"
tied: false
lr: 1e-3
clip: none
betas: [0.8, 1]
tags: [a, "b c"]
every: 1e3
set: {model.memory.0.size: 16, data: {rows: 3}}
model:
  attention: {window: 128, cache: {kind: kv, length: 64}}
  memory:
    - kind: knn
      layers: [0, 2]
    - {kind: vq, size: 4}
)");
  EXPECT_EQ(run.corpus, "books.h5");
  EXPECT_EQ(run.name, "a: name");
  EXPECT_FALSE(run.tied);
  EXPECT_EQ(run.lr, 1e-3);
  EXPECT_FALSE(run.clip.has_value());
  EXPECT_EQ(run.betas, (std::vector<double>{0.8, 1.0}));
  EXPECT_EQ(run.tags, (std::vector<std::string>{"a", "b c"}));
  EXPECT_EQ(run.every, 1000);
  EXPECT_EQ(run.set, (ConfigSettings{{"model.memory.0.size", "16"}, {"data.rows", "3"}}));
  EXPECT_EQ(run.model.width, 256);
  EXPECT_EQ(run.model.attention.window, 128);
  EXPECT_EQ(run.model.attention.cache.kind, ExampleKind::kv);
  ASSERT_EQ(run.model.memory.size(), 2U);
  EXPECT_EQ(run.model.memory[0].layers, (std::vector<int64_t>{0, 2}));
  EXPECT_EQ(run.model.memory[0].size, 8192);
  EXPECT_EQ(run.model.memory[1].layers, (std::vector<int64_t>{-2}));
}

TEST(Config, AnEmptySectionKeepsItsDefaults) {
  EXPECT_EQ(example("corpus: a\nmodel:\n").model.width, 256);
}

TEST(Config, UnknownKeysNameTheNearestOne) {
  EXPECT_EQ(example_error("corpus: a\nmodel:\n  wdith: 3\n"),
            "run.yaml:3:3: model.wdith: unknown key; did you mean model.width?");
  EXPECT_EQ(example_error("corpus: a\nmodel:\n  window: 3\n"),
            "run.yaml:3:3: model.window: unknown key; did you mean model.attention.window?");
  EXPECT_EQ(example_error("corpus: a\nmodel: {memory: [{kind: knn, sizes: 3}]}\n"),
            "run.yaml:2:30: model.memory.0.sizes: unknown key; did you mean model.memory.0.size?");
  EXPECT_EQ(example_error("corpus: a\nmodel: {attention: {colour: 3}}\n"),
            "run.yaml:2:21: model.attention.colour: unknown key; the keys here are window, cache");
  EXPECT_EQ(example_error("copus: a\n"), "run.yaml:1:1: copus: unknown key; did you mean corpus?");
}

TEST(Config, DuplicateKeysAreRefused) {
  EXPECT_EQ(example_error("corpus: a\nmodel:\n  width: 3\n  width: 4\n"),
            "run.yaml:4:3: model.width: duplicate key; first given at run.yaml:3:3");
  EXPECT_EQ(example_error("corpus: a\nmodel: {memory: [{kind: a}, {kind: a, kind: b}]}\n"),
            "run.yaml:2:39: model.memory.1.kind: duplicate key; first given at run.yaml:2:30");
  EXPECT_EQ(example_error("corpus: a\nset: {a.b: 1, a: {b: 2}}\n"), "run.yaml:2:19: set.a.b: duplicate key");
}

TEST(Config, WrongTypesAreRefused) {
  const auto error = [](const std::string& line) { return example_error("corpus: a\n" + line + "\n"); };
  EXPECT_EQ(error("tied: yes"), "run.yaml:2:7: tied: expects true or false, got 'yes'; write true");
  EXPECT_EQ(error("tied: Off"), "run.yaml:2:7: tied: expects true or false, got 'Off'; write false");
  EXPECT_EQ(error("tied: \"true\""), "run.yaml:2:7: tied: expects true or false, got the quoted text \"true\"");
  EXPECT_EQ(error("every: 0123"),
            "run.yaml:2:8: every: expects an integer, got '0123'; it looks like an octal number, write it without the "
            "leading zero");
  EXPECT_NE(error("every: 0o17").find("octal"), std::string::npos);
  EXPECT_EQ(error("lr: 01.5e-3"), "run.yaml:2:5: lr: expects a number, got '01.5e-3'");
  EXPECT_EQ(error("every: 0x10"), "run.yaml:2:8: every: expects an integer, got '0x10'; write it in decimal");
  EXPECT_EQ(error("every: 1.5"), "run.yaml:2:8: every: expects an integer, got '1.5'");
  EXPECT_EQ(error("every: 5k"), "run.yaml:2:8: every: expects an integer, got '5k'");
  EXPECT_EQ(error("every: 1_000"), "run.yaml:2:8: every: expects an integer, got '1_000'");
  EXPECT_EQ(error("every: [1]"), "run.yaml:2:8: every: expects an integer, got a list");
  EXPECT_EQ(error("every: none"), "run.yaml:2:8: every: expects an integer, got 'none'");
  EXPECT_EQ(error("every: 9223372036854775808"), "run.yaml:2:8: every: '9223372036854775808' does not fit 64 bits");
  EXPECT_EQ(error("every: 1e99"), "run.yaml:2:8: every: '1e99' does not fit 64 bits");
  EXPECT_EQ(error("lr: .nan"), "run.yaml:2:5: lr: expects a number, got '.nan'; it must be finite");
  EXPECT_EQ(error("lr: -inf"), "run.yaml:2:5: lr: expects a number, got '-inf'; it must be finite");
  EXPECT_EQ(error("lr: 1e400"), "run.yaml:2:5: lr: '1e400' does not fit a 64-bit floating-point number");
  EXPECT_EQ(error("lr: 1e"), "run.yaml:2:5: lr: expects a number, got '1e'");
  EXPECT_EQ(error("lr: ."), "run.yaml:2:5: lr: expects a number, got '.'");
  EXPECT_EQ(error("lr: 0x1p3"), "run.yaml:2:5: lr: expects a number, got '0x1p3'; write it in decimal");
  EXPECT_NE(error("every: " + std::string(300000, '1')).find("1111...' does not fit 64 bits"), std::string::npos);
  EXPECT_EQ(error("lr: fast"), "run.yaml:2:5: lr: expects a number, got 'fast'");
  EXPECT_EQ(error("name:"), "run.yaml:2:1: name: expects text, got nothing");
  EXPECT_EQ(error("betas: 0.9"), "run.yaml:2:8: betas: expects a list such as [a, b], got '0.9'");
  EXPECT_EQ(error("betas: [0.9, x]"), "run.yaml:2:14: betas.1: expects a number, got 'x'");
  EXPECT_EQ(error("model: 3"), "run.yaml:2:8: model: expects a section of 'key: value' lines, got '3'");
  EXPECT_EQ(error("model: {memory: {kind: knn}}"),
            "run.yaml:2:17: model.memory: expects a list such as [a, b], got a section");
  EXPECT_EQ(error("model: {attention: {cache: {kind: keys}}}"),
            "run.yaml:2:35: model.attention.cache.kind: expects one of none, hidden, kv, got 'keys'");
}

TEST(Config, Numbers) {
  const auto number = [](const std::string& text) { return example("corpus: a\nclip: " + text + "\n").clip; };
  EXPECT_EQ(number("0"), 0.0);
  EXPECT_EQ(number("5e-4"), 5e-4);
  EXPECT_EQ(number(".5"), 0.5);
  EXPECT_EQ(number("2."), 2.0);
  EXPECT_EQ(number("1E+3"), 1000.0);
  EXPECT_EQ(number("0.1"), 0.1);
  EXPECT_EQ(number("0e0"), 0.0);
  EXPECT_EQ(example("corpus: a\nevery: 9007199254740992\n").every, kLargestInteger);
}

TEST(Config, RangesAreChecked) {
  const auto error = [](const std::string& line) { return example_error("corpus: a\n" + line + "\n"); };
  EXPECT_EQ(error("every: 0"), "run.yaml:2:8: every: must be at least 1, got 0");
  EXPECT_EQ(error("lr: 0"), "run.yaml:2:5: lr: must be above 0, got 0");
  EXPECT_EQ(error("betas: [0.9, 1.5]"), "run.yaml:2:14: betas.1: must be at least 0 and at most 1, got 1.5");
  EXPECT_EQ(error("model: {attention: {window: -1}}"),
            "run.yaml:2:29: model.attention.window: must be at least 1, got -1");
}

TEST(Config, RequiredKeys) {
  EXPECT_EQ(example_error(""), "run.yaml:1:1: corpus: this key is required");
  EXPECT_EQ(example_error("corpus: a\nmodel: {memory: [{size: 3}]}\n"),
            "run.yaml:2:18: model.memory.0.kind: this key is required");
}

TEST(Config, ContradictionsPointAtTheirKey) {
  EXPECT_EQ(example_error("corpus: a\nmodel:\n  attention: {window: 4, cache: {length: 5}}\n"),
            "run.yaml:3:42: model.attention.cache.length: must not be above window");
}

TEST(Config, YamlBeyondPlainDataIsRefused) {
  EXPECT_EQ(example_error("corpus: &x a\n"),
            "run.yaml:1:9: YAML anchors (&name) are not supported; write the value out");
  EXPECT_NE(example_error("corpus: *x\n"), "no error");
  EXPECT_EQ(example_error("corpus: !!str a\n"), "run.yaml:1:9: YAML tags (tag:yaml.org,2002:str) are not supported");
  EXPECT_EQ(example_error("corpus: a\n---\ncorpus: b\n"),
            "run.yaml: a second YAML document; a configuration is one document");
  EXPECT_EQ(example_error("[a, b]\n"), "run.yaml:1:1: expects 'key: value' lines, got a list");
  EXPECT_EQ(example_error("? [a]\n: b\n"), "run.yaml:1:3: a key must be text, not a list or section");
  EXPECT_EQ(example_error("corpus: a\nmodel: {width: 3\n").substr(0, 14), "run.yaml:3:1: ");
  EXPECT_EQ(example_error("corpus: a\nname: b\xff\n"), "run.yaml:2:8: invalid UTF-8 (byte 0xff)");
  EXPECT_EQ(example_error("corpus: a\nname: b\x04\n"), "run.yaml:2:8: control character (byte 0x04)");
}

TEST(Config, TabsAndDepthAreNamed) {
  const std::pair<const char*, const char*> tabs[] = {
      {"corpus: a\n\twidth: 3\n", "run.yaml:2:1"},
      {"model:\n\twidth: 3\n", "run.yaml:2:1"},
      {"corpus: a\nmodel:\n  memory: []\n \twidth: 3\n", "run.yaml:4:2"},
  };
  for (const auto& [text, place] : tabs) {
    EXPECT_EQ(example_error(text), std::string(place) + ": a tab indents this line; YAML wants spaces");
  }
  EXPECT_EQ(example_error("corpus: a\nmodel: {attention: {window: 3,\n\tcache: {kind: kv, length: 2}}}\n"), "no error");
  EXPECT_NE(example_error("corpus: a: b\n\twidth: 3\n").find("YAML: illegal map value"), std::string::npos);

  for (const size_t depth : {40, 600, 20000}) {
    const std::string brackets = std::string(depth, '[') + std::string(depth, ']');
    EXPECT_NE(example_error("corpus: " + brackets).find("nested more than 32 deep"), std::string::npos) << depth;
  }
  std::string sections;
  for (size_t depth = 0; depth < 300; ++depth) sections += std::string(depth, ' ') + "a:\n";
  EXPECT_EQ(example_error(sections),
            "run.yaml:33:33: sections and lists are nested more than 32 deep; no configuration "
            "needs that");
}

TEST(Config, FilesThatAreNoYaml) {
  EXPECT_EQ(example_error("\x89HDF\r\n\x1a\n"),
            "run.yaml: is an HDF5 file such as a corpus, not a configuration; give the YAML file of a run, in which "
            "data.corpus names the corpus");
}

TEST(Config, PathsAreRelativeToTheFile) {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "config_paths";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "run.yaml") << "corpus: ../books.h5\nfrom: /abs/x\n";
  const auto run = load_config<ExampleRun>((folder / "run.yaml").string());
  EXPECT_EQ(run.corpus, (folder.parent_path() / "books.h5").lexically_normal().string());
  EXPECT_EQ(run.from, "/abs/x");
  // A path typed on the command line is relative to the folder it was typed in.
  const auto typed = load_config<ExampleRun>((folder / "run.yaml").string(), {"corpus=b.h5"});
  EXPECT_EQ(typed.corpus, (std::filesystem::current_path() / "b.h5").string());
  const std::string absent = (folder / "absent.yaml").string();
  EXPECT_EQ(config_message([&] { load_config<ExampleRun>(absent); }),
            "cannot open " + absent + ": No such file or directory");
  EXPECT_EQ(config_message([&] { load_config<ExampleRun>(folder.string()); }),
            folder.string() + ": is a folder; give the YAML file");
}

TEST(ConfigOverride, ReplacesAndAdds) {
  const std::string text = "corpus: a\nset: {model.width: 3}\nmodel: {memory: [{kind: knn}]}\n";
  const ExampleRun run = example(text, {"model.memory.0.size=7", "model.attention.cache={kind: kv, length: 9}",
                                        "name=x=y", "set.model.width=5", "betas=[0.5]", "tied=false", "tied=true"});
  EXPECT_EQ(run.model.memory[0].size, 7);
  EXPECT_EQ(run.model.attention.cache.kind, ExampleKind::kv);
  EXPECT_EQ(run.model.attention.cache.length, 9);
  EXPECT_EQ(run.name, "x=y");
  EXPECT_EQ(run.set, (ConfigSettings{{"model.width", "5"}}));
  EXPECT_EQ(run.betas, (std::vector<double>{0.5}));
  EXPECT_TRUE(run.tied);
}

TEST(ConfigOverride, ErrorsShowTheArgument) {
  const auto error = [](const std::string& text) { return example_error("corpus: a\n", {text}); };
  EXPECT_EQ(error("model.wdith=3"), "command line: model.wdith=3: model.wdith: unknown key; did you mean model.width?");
  EXPECT_EQ(error("every=no"), "command line: every=no: every: expects an integer, got 'no'");
  EXPECT_EQ(error("every"), "command line: 'every' is not of the form key.path=value");
  EXPECT_EQ(error("a..b=1"), "command line: 'a..b=1' is not of the form key.path=value");
  EXPECT_EQ(error("name="),
            "command line: name=: no value after '='; write none for nothing and '\"\"' for empty text");
  EXPECT_EQ(error("corpus.x=1"), "command line: corpus.x=1: corpus is 'a', not a section");
  EXPECT_EQ(example_error("corpus: a\nmodel: {memory: [{kind: k}]}\n", {"model.memory.1.size=2"}),
            "command line: model.memory.1.size=2: model.memory: the list has 1 entries and no entry '1'; give the "
            "whole list to add one");
  EXPECT_NE(error("name=[a").find("command line: name=[a"), std::string::npos);
}

}  // namespace
}  // namespace quire
