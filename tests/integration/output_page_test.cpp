// configs/OUTPUT.md names every field that a run writes, EVALUATION.md those of an evaluation, COMPARE.md of a
// comparison, configs/TRACE.md those of a trace, and no other.
#include <fmt/format.h>

#include <regex>
#include <set>

#include "tests/support/on_ranks.h"
#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

// The fields of the tables below a heading.
std::set<std::string> documented(const std::string& heading, const std::string& name = "OUTPUT.md") {
  const std::string page = read_text(std::filesystem::path(QUIRE_SOURCE_DIR) / "configs" / name);
  const size_t begin = page.find("\n## " + heading + "\n");
  EXPECT_NE(begin, std::string::npos) << heading;
  std::istringstream lines(page.substr(begin + 4, page.find("\n## ", begin + 4) - begin - 4));
  std::set<std::string> fields;
  for (std::string line; std::getline(lines, line);) {
    if (line.rfind("| `", 0) == 0) fields.insert(line.substr(3, line.find('`', 3) - 3));
  }
  return fields;
}

// Dotted names of all values, with N for numbers. Below a documented NAME.* nothing is looked at.
void collect(const nlohmann::ordered_json& json, const std::string& name, const std::set<std::string>& known,
             std::set<std::string>& found) {
  if (known.count(name + ".*") > 0) {
    found.insert(name + ".*");
    return;
  }
  if (!json.is_structured()) {
    found.insert(name);
    return;
  }
  for (const auto& [key, value] : json.items()) {
    const std::string part = std::regex_replace(key, std::regex("(^|\\.)[0-9]+(?=\\.|$)"), "$1N");
    collect(value, name.empty() ? part : fmt::format("{}.{}", name, part), known, found);
  }
}

std::set<std::string> fields_of(const nlohmann::ordered_json& json, const std::set<std::string>& known) {
  std::set<std::string> found;
  collect(json, "", known, found);
  return found;
}

std::string difference(const std::set<std::string>& found, const std::set<std::string>& known) {
  std::string text;
  for (const std::string& name : found) text += known.count(name) > 0 ? "" : " undocumented: " + name;
  for (const std::string& name : known) text += found.count(name) > 0 ? "" : " does not exist: " + name;
  return text;
}

TEST(OutputPage, NamesEveryFieldAndNoOther) {
  const TinyRun tiny;
  ASSERT_EQ(run_quire({"prepare", "--task", "recall", "--set", "length=600", "--split", "train=4", "--split", "valid=2",
                       "--output", (tiny / "recall.h5").string()})
                .code,
            0);
  const std::string layers =
      "{layers: [0], attention: {kind: vq, vq: {window: 8, codes: 8, block: 8}}}, {layers: [2], position: {kind: "
      "rope}, "
      "attention: {kind: landmark, landmark: {block: 7, carry: {in_training: true}, context_miss: {enabled: true, "
      "cutoff: 0.3}}}}";
  const ProgramResult trained = tiny.train(
      "run", {"data.corpus=" + (tiny / "recall.h5").string(), "schedule.steps=4", "log.every=1", "evaluate.every=4",
              "model.layers=3", "model.attention.softmax.carry={kind: none, length: none}",
              "model.layer_overrides=[" + layers + "]", "model.stack={kind: drt, drt: {chunk: 7, top_k: 2}}",
              "model.memory=[{kind: knn, layers: [1], carry: {length: 64}, top_k: 4, search: bucketed}]"});
  ASSERT_EQ(trained.code, 0) << trained.err;

  // Fields that a model with all mechanisms cannot have.
  ASSERT_EQ(tiny.train("predicted", {"schedule.steps=2", "model.position.kind=rope",
                                     "model.attention={kind: landmark, landmark: "
                                     "{block: 4, in_loss: true}}",
                                     "loss={z_weight: 0.01, label_smoothing: 0.1}"})
                .code,
            0);

  const std::string recurrent =
      "{layers: [0], position: {kind: rope}, attention: {kind: infini, infini: {block: 6}}}, {layers: [1], position: "
      "{kind: none}, attention: {kind: delta}}, {layers: [2], position: {kind: t5}, attention: {kind: "
      "block_recurrent, block_recurrent: {window: 6, states: 4}}}, {layers: [3], position: {kind: rope}, attention: "
      "{kind: hils, hils: {chunk: 4, window: 4}}}";
  ASSERT_EQ(
      tiny.train("recurrent", {"schedule.steps=2", "model.layers=4", "model.layer_overrides=[" + recurrent + "]"}).code,
      0);

  // Fields that a single rank does not have.
  ASSERT_EQ(on_ranks(2, tiny.train_arguments("two", {"schedule.steps=2", "log.norms=true"})).code, 0);

  const std::set<std::string> steps = documented("A logged step");
  const std::set<std::string> telemetry = documented("Telemetry");
  const std::set<std::string> evaluations = documented("An evaluation", "EVALUATION.md");
  std::set<std::string> found_in_steps;
  std::set<std::string> found_in_telemetry;
  std::set<std::string> found_in_evaluations;
  for (const nlohmann::ordered_json& line : read_metrics(tiny / "run/metrics.jsonl")) {
    if (line.contains("evaluation")) {
      found_in_evaluations = fields_of(line.at("evaluation"), evaluations);
      found_in_evaluations.insert("step");
      continue;
    }
    found_in_steps.merge(fields_of(line, steps));
    found_in_telemetry.merge(fields_of(line.at("telemetry"), telemetry));
  }
  for (const char* run : {"predicted/metrics.jsonl", "recurrent/metrics.jsonl"}) {
    found_in_telemetry.merge(fields_of(read_metrics(tiny / run).front().at("telemetry"), telemetry));
  }
  found_in_steps.merge(fields_of(read_metrics(tiny / "two/metrics.jsonl").front(), steps));
  EXPECT_EQ(difference(found_in_steps, steps), "");
  EXPECT_EQ(difference(found_in_telemetry, telemetry), "");
  EXPECT_EQ(difference(found_in_evaluations, evaluations), "");

  const ProgramResult evaluated =
      run_quire({"eval", (tiny / "run").string(), "--json", "--documents", "--by-position", "--bins", "300"});
  ASSERT_EQ(evaluated.code, 0) << evaluated.err;
  std::set<std::string> all = documented("More of `quire eval --json`", "EVALUATION.md");
  all.insert(evaluations.begin(), evaluations.end());
  std::set<std::string> found = fields_of(nlohmann::ordered_json::parse(evaluated.out), all);
  const ProgramResult several =
      run_quire({"eval", (tiny / "run").string(), "--json", "--sweep", "data.subsequence=14,21"});
  ASSERT_EQ(several.code, 0) << several.err;
  found.merge(fields_of(nlohmann::ordered_json::parse(several.out), all));
  EXPECT_EQ(difference(found, all), "");
}

TEST(OutputPage, NamesEveryFieldOfAComparison) {
  const TinyRun tiny;
  std::vector<std::string> arguments{"compare"};
  for (const char* name : {"a1", "a2", "b1", "b2", "c"}) {
    std::vector<std::string> overrides{"schedule.steps=2", "evaluate.every=1", fmt::format("run.seed={}", name[1])};
    if (name[0] == 'b') overrides.emplace_back("optimizer.lr=1e-3");
    if (name[0] == 'c') overrides = {"schedule.steps=1", "schedule.warmup=1"};
    const ProgramResult trained = tiny.train(name, overrides);
    ASSERT_EQ(trained.code, 0) << trained.err;
    arguments.push_back((tiny / name).string());
  }
  const auto stored = nlohmann::ordered_json::parse(read_text(tiny / "a1/evaluations/valid.best.json"));
  std::set<std::string> of_file = documented("A stored evaluation", "COMPARE.md");
  for (const char* of_marks : {"recalled_tokens", "recalled_right"}) {
    EXPECT_EQ(of_file.erase(std::string("documents.N.") + of_marks), 1U);
  }
  EXPECT_EQ(difference(fields_of(stored, of_file), of_file), "");
  arguments.insert(arguments.end(), {"--keep", (tiny / "kept.jsonl").string()});
  EXPECT_EQ(run_quire(arguments).code, 0);
  arguments.resize(arguments.size() - 2);
  std::set<std::string> of_kept = documented("A file of kept runs", "COMPARE.md");
  EXPECT_EQ(of_kept.erase("origins.N"), 1U);  // these runs have none
  of_kept.insert("evaluation.*");
  of_kept.erase("evaluation");
  const std::string kept = read_text(tiny / "kept.jsonl");
  EXPECT_EQ(difference(fields_of(nlohmann::ordered_json::parse(kept.substr(0, kept.find('\n'))), of_kept), of_kept),
            "");
  std::set<std::string> found;
  const std::set<std::string> fields = documented("`quire compare --json`", "COMPARE.md");
  // A run that has not evaluated while training leaves figures at equal time out.
  for (const size_t count : {4U, 5U}) {
    std::vector<std::string> some(arguments.begin(), arguments.begin() + static_cast<int64_t>(count) + 1);
    some.emplace_back("--json");
    const ProgramResult compared = run_quire(some);
    ASSERT_EQ(compared.code, 0) << compared.err;
    found.merge(fields_of(nlohmann::ordered_json::parse(compared.out), fields));
  }
  // Two documents have no interval.
  EXPECT_EQ(found.erase("differences.N.interval"), 1U);
  found.insert("differences.N.interval.N");
  EXPECT_EQ(difference(found, fields), "");
}

TEST(OutputPage, NamesEveryFieldOfATrace) {
  const TinyRun tiny;
  const ProgramResult trained =
      tiny.train("run", {"schedule.steps=2", "model.memory=[{kind: knn, layers: [1], carry: {length: 64}, top_k: 4}]"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  const std::string prompt(40, 'a');
  write_text(tiny / "prompt.txt", prompt);
  const std::set<std::string> fields = documented("`quire trace --json`", "TRACE.md");
  std::set<std::string> found;
  for (const std::vector<std::string>& text : {std::vector<std::string>{"--prompt", prompt},
                                               {"--prompt-file", (tiny / "prompt.txt").string()},
                                               {"--document", "0"}}) {
    std::vector<std::string> arguments{"trace", (tiny / "run").string(), "--json"};
    arguments.insert(arguments.end(), text.begin(), text.end());
    const ProgramResult traced = run_quire(arguments);
    ASSERT_EQ(traced.code, 0) << traced.err;
    found.merge(fields_of(nlohmann::ordered_json::parse(traced.out), fields));
  }
  EXPECT_EQ(difference(found, fields), "");
}

}  // namespace
}  // namespace quire::test
