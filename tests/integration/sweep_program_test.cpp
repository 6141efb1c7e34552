// quire sweep: variants times seeds, what it refuses, how it goes on, and the comparison at its end.
#include <fmt/format.h>

#include "tests/faults/expect_fault.h"
#include "trainers/sweep/sweep.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kSweep = R"(config: run.yaml
set: ["schedule.steps=6", "evaluate.every=3", "checkpoint.every=3"]
seeds: [1, 2]
baseline: plain
variants:
  - {name: short, config: short.yaml}
  - {name: plain}
  - {name: tuned, from: plain, set: ["optimizer.lr=1e-3"]}
)";

class Sweep : public ::testing::Test {
 protected:
  void SetUp() override {
    write_text(tiny_ / "sweep.yaml", kSweep);
    std::string text = read_text(tiny_.config());
    const std::string length = "length: 12";
    ASSERT_NE(text.find(length), std::string::npos);
    write_text(tiny_ / "short.yaml", text.replace(text.find(length), length.size(), "length: 4"));
  }
  ProgramResult sweep(const std::vector<std::string>& more = {}) const {
    std::vector<std::string> arguments{"sweep", (tiny_ / "sweep.yaml").string(), "--run-dir",
                                       (tiny_ / "runs").string()};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_quire(arguments);
  }
  // The file with one text replaced.
  void change(const std::string& from, const std::string& to) const {
    std::string text = read_text(tiny_ / "sweep.yaml");
    ASSERT_NE(text.find(from), std::string::npos);
    write_text(tiny_ / "sweep.yaml", text.replace(text.find(from), from.size(), to));
  }
  std::string weights(const std::string& run) const {
    return read_text(tiny_.checkpoint("runs/" + run, 6) / "model.h5");
  }
  TinyRun tiny_;
};

size_t count_of(const std::string& text, const std::string& word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++count;
  return count;
}

TEST_F(Sweep, TrainsAndComparesEveryVariantWithEverySeed) {
  const std::string page = (tiny_ / "page.html").string();
  const ProgramResult result = sweep({"--json", "--html", page});
  ASSERT_EQ(result.code, 0) << result.err;
  const auto comparison = nlohmann::ordered_json::parse(result.out);
  // Runs that begin with the weights of runs of their seed are a group, too.
  ASSERT_EQ(comparison.at("groups").size(), 3U);
  for (const auto& group : comparison.at("groups")) {
    EXPECT_EQ(group.at("seeds"), nlohmann::ordered_json({1, 2})) << group;
    EXPECT_EQ(group.at("group") == comparison.at("baseline"), group.at("name") == "plain") << group;
  }
  EXPECT_TRUE(fs::exists(page));
  for (const char* seed : {"1", "2"}) {
    const std::string config = read_text(tiny_ / "runs" / (std::string("tuned-") + seed) / "config.yaml");
    EXPECT_NE(config.find(std::string("plain-") + seed), std::string::npos);
    EXPECT_NE(config.find(std::string("seed: ") + seed), std::string::npos);
  }
  // Each run is the one that train makes.
  const ProgramResult alone =
      run_quire(tiny_.train_arguments("alone", {"schedule.steps=6", "evaluate.every=3", "checkpoint.every=3",
                                                "run.seed=2", "model.attention.softmax.carry.length=4"}));
  ASSERT_EQ(alone.code, 0) << alone.err;
  fs::rename(tiny_ / "alone", tiny_ / "runs/alone");
  EXPECT_FALSE(weights("alone").empty());
  EXPECT_TRUE(weights("alone") == weights("short-2"));

  // Again: nothing is trained.
  const auto written = fs::last_write_time(tiny_ / "runs/tuned-2/metrics.jsonl");
  const ProgramResult again = sweep();
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(fs::last_write_time(tiny_ / "runs/tuned-2/metrics.jsonl"), written);
  // Settings that cannot change are refused before anything is trained, also those of the last run.
  fs::remove_all(tiny_ / "runs/short-1");
  change("\"optimizer.lr=1e-3\"", "\"optimizer.lr=1e-3\", \"model.width=32\"");
  const ProgramResult changed = sweep();
  EXPECT_EQ(changed.code, 2);
  EXPECT_NE(changed.err.find("tuned-1: cannot change on --resume: model.width"), std::string::npos) << changed.err;
  EXPECT_FALSE(fs::exists(tiny_ / "runs/short-1"));
  change(", \"model.width=32\"", "");
  EXPECT_EQ(sweep().code, 0);
  // A change that no step is left for is refused; more steps are trained.
  EXPECT_EQ(sweep({"optimizer.lr=1e-3"}).code, 2);
  const ProgramResult longer = sweep({"schedule.steps=7"});
  EXPECT_EQ(longer.code, 0) << longer.err;
  EXPECT_TRUE(fs::exists(tiny_.checkpoint("runs/tuned-2", 7)));
}

TEST_F(Sweep, GoesOnWhereItWasStopped) {
  change("seeds: [1, 2]", "seeds: [1]");
  change("  - {name: tuned, from: plain, set: [\"optimizer.lr=1e-3\"]}\n", "");
  const ProgramResult limited = sweep({"run.max_wall_time=1s", "schedule.steps=100000"});
  ASSERT_EQ(limited.code, 75) << limited.err;
  EXPECT_FALSE(fs::exists(tiny_ / "runs/plain-1"));
  const int64_t step = checkpoint_steps(tiny_ / "runs/short-1/checkpoints").front();
  const ProgramResult result = sweep({fmt::format("schedule.steps={}", step + 1)});
  ASSERT_EQ(result.code, 0) << result.err;
  EXPECT_NE(result.err.find(fmt::format("going on from step {}", step)), std::string::npos) << result.err;
}

TEST_F(Sweep, AVariantThatDivergesLeavesTheOthers) {
  change("\"optimizer.lr=1e-3\"", "\"optimizer.lr=1e30\", \"optimizer.clip=0\"");
  const ProgramResult result = sweep();
  EXPECT_EQ(result.code, 5) << result.err;
  EXPECT_NE(result.out.find("4 runs of 2 configurations"), std::string::npos) << result.out;
  // Runs that begin with one that failed are left out.
  change("from: plain, set: [\"optimizer.lr=1e30\", \"optimizer.clip=0\"]", "from: bad");
  change("  - {name: tuned", "  - {name: bad, set: [\"optimizer.lr=1e30\", \"optimizer.clip=0\"]}\n  - {name: more");
  const ProgramResult second = sweep();
  EXPECT_EQ(second.code, 5) << second.err;
  EXPECT_NE(second.err.find("more-1: is left out, since"), std::string::npos) << second.err;
}

TEST_F(Sweep, PrintsJobsOfRunsThatAreNotTrained) {
  const ProgramResult first = sweep({"--sbatch", "my script"});
  ASSERT_EQ(first.code, 0) << first.err;
  EXPECT_EQ(count_of(first.out, "sbatch --job-name="), 4U) << first.out;
  EXPECT_NE(first.out.find(" 'my script' "), std::string::npos) << first.out;
  EXPECT_NE(first.err.find("2 runs begin with the weights of runs that are not trained yet"), std::string::npos);
  EXPECT_FALSE(fs::exists(tiny_ / "runs"));
  ASSERT_EQ(sweep().code, 0);
  fs::remove_all(tiny_ / "runs/tuned-1");
  fs::remove_all(tiny_ / "runs/short-2");
  const ProgramResult rest = sweep({"--sbatch", "s.sh"});
  EXPECT_EQ(count_of(rest.out, "sbatch --job-name="), 2U) << rest.out;
  EXPECT_NE(rest.out.find("sbatch --job-name=tuned-1 s.sh "), std::string::npos) << rest.out;
  EXPECT_NE(rest.out.find(" init.from="), std::string::npos) << rest.out;
}

TEST_F(Sweep, KeptRunsAreThoseOfTheSweepAsItIs) {
  change("  - {name: plain}",
         "  - {name: base, compared: false, set: [\"schedule.steps=2\"]}\n  - {name: plain, from: base}");
  change("from: plain, set", "from: plain, beside: short, set");
  change("baseline: plain", "baseline: plain\nmetrics: [bits_per_byte, \"bits_per_byte@8\"]");
  const std::string file = (tiny_ / "kept.jsonl").string();
  const ProgramResult trained = sweep({"--markdown", "--keep", file, "evaluate.documents=1"});
  ASSERT_EQ(trained.code, 0) << trained.err;
  EXPECT_NE(trained.out.find("| tuned, beside short | bits_per_byte@8 | "), std::string::npos) << trained.out;
  EXPECT_EQ(trained.out.find("| base |"), std::string::npos) << trained.out;  // its runs are not compared
  const auto of_file = [&](const std::vector<std::string>& more) {
    std::vector<std::string> arguments{"sweep", (tiny_ / "sweep.yaml").string(), "--kept", file,
                                       "evaluate.documents=1"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_quire(arguments);
  };
  // All documents are read, also where evaluations while training read one.
  const auto kept = nlohmann::ordered_json::parse(of_file({"--json"}).out);
  for (const auto& run : kept.at("runs")) EXPECT_EQ(run.at("documents"), 2) << run;
  // The same tables without the runs and the corpus; compare reads the file, too.
  fs::remove_all(tiny_ / "runs");
  fs::rename(tiny_ / "corpus.h5", tiny_ / "corpus");
  // Without paths.
  const auto tables = [](const std::string& text) {
    const size_t begin = text.find("## Final figures");
    return text.substr(begin, text.find("## What differs") - begin);
  };
  const ProgramResult again = of_file({"--markdown"});
  EXPECT_EQ(again.code, 0) << again.err;
  EXPECT_EQ(tables(again.out), tables(trained.out));
  EXPECT_FALSE(fs::exists(tiny_ / "runs"));
  const ProgramResult compared = run_quire({"compare", file, "--baseline", file + "/plain-1", "--markdown"});
  EXPECT_EQ(compared.code, 0) << compared.err;
  EXPECT_NE(compared.out.find("## Difference from plain\n"), std::string::npos) << compared.out;
  EXPECT_EQ(run_quire({"compare", file, file}).code, 2);
  // Another program may write the lines anew; wrong values are refused.
  const std::string written = read_text(file);
  const auto changed_file = [&](const std::string& from, const std::string& to) {
    std::string text = written;
    for (size_t at = text.find(from); at != std::string::npos; at = text.find(from, at + to.size())) {
      text.replace(at, from.size(), to);
    }
    write_text(file, text);
  };
  changed_file("\":", "\": ");
  write_text(file, "\xEF\xBB\xBF" + read_text(file));
  EXPECT_EQ(tables(of_file({"--markdown"}).out), tables(trained.out));
  EXPECT_EQ(run_quire({"compare", file}).code, 0);
  const std::pair<const char*, const char*> faults[] = {
      {"\"seconds\":", "\"seconds\":-1"},
      {"\"tokens\":", "\"tokens\":-1"},
      {"\"train_seconds\":", "\"train_seconds\":-1"},
      {"\"kind\":\"quire evaluation\",\"version\":1", "\"kind\":\"quire evaluation\",\"version\":2"},
      {"\"kind\":\"quire evaluation\"", "\"kind\":\"another\""}};
  for (const auto& [from, to] : faults) {
    changed_file(from, to);
    EXPECT_FAULT(run_quire({"compare", file}), 3, "kept.jsonl:1: is a damaged run");
  }
  changed_file("{\"kind\"", "{\"kin\"");
  EXPECT_FAULT(run_quire({"compare", file}), 3, "is neither the directory of a run nor a file of kept runs");
  EXPECT_FAULT(of_file({}), 3, "is no file of kept runs");
  write_text(file, written);
  // A comment changes nothing; a setting does, also that of the base.
  write_text(tiny_ / "run.yaml", "# A comment.\n" + read_text(tiny_ / "run.yaml"));
  EXPECT_EQ(tables(of_file({"--markdown"}).out), tables(trained.out));
  const ProgramResult other = of_file({"optimizer.clip=0.5"});
  EXPECT_EQ(other.code, 2);
  EXPECT_NE(other.err.find("was trained with other settings than those of now: "), std::string::npos) << other.err;
  change("steps=2", "steps=3");
  EXPECT_NE(of_file({}).err.find("init.from: schedule.steps is 2 there and 3 now"), std::string::npos);
  change("steps=3", "steps=2");
  change("name: tuned", "name: another");
  EXPECT_NE(of_file({}).err.find("tuned-1: is no run of "), std::string::npos) << of_file({}).err;
}

TEST_F(Sweep, RefusesBeforeAnythingIsTrained) {
  const std::tuple<const char*, const char*, const char*> faults[] = {
      {"name: plain", "name: a/b", "'a/b' cannot be the name of a folder"},
      {"name: plain", "name: short", "there are two variants short"},
      {"from: plain", "from: other", "there is no variant other before this one"},
      {"seeds: [1, 2]", "seeds: [1, 1]", "1 stands there twice"},
      {"baseline: plain", "baseline: none-of-them", "there is no compared variant none-of-them"},
      {"{name: plain}", "{name: plain, compared: false}", "there is no compared variant plain"},
      {"from: plain", "beside: tuned", "there is no other compared variant tuned"},
      {"baseline: plain", "metrics: [bits]", "metrics: metric bits: use bits_per_byte"},
      {"optimizer.lr=1e-3", "optimizer.rate=1e-3", "variant tuned: "},
      {"short.yaml", "short.yaml, set: [\"data.corpus=nowhere.h5\"]", "variant short: "},
      {"short.yaml", "nowhere.yaml", "nowhere.yaml"},
      {"seeds:", "seed:", "unknown key"},
      {"schedule.steps=6", "run.seed=4", ": set: run.seed=4: a run has one of `seeds` of the sweep"},
      {"optimizer.lr=1e-3", "run={seed: 4}", ": a run has one of `seeds` of the sweep"},
      {"optimizer.lr=1e-3", "init.from=other", ": the run begins with the weights of `from` of the variant"},
      {"tuned, from", "same, set: [\"log.every=2\"]}\n  - {name: tuned, from", "variants plain and same have the same"},
  };
  for (const auto& [from, to, message] : faults) {
    write_text(tiny_ / "sweep.yaml", kSweep);
    change(from, to);
    const ProgramResult result = sweep();
    EXPECT_TRUE(result.code == 2 || result.code == 3) << result.err;
    EXPECT_NE(result.err.find(message), std::string::npos) << result.err;
    EXPECT_EQ(count_of(result.err, "\n"), 1U) << result.err;
    EXPECT_FALSE(fs::exists(tiny_ / "runs")) << message;
  }
  write_text(tiny_ / "sweep.yaml", kSweep);
  EXPECT_EQ(sweep({"--check"}).out, (tiny_ / "sweep.yaml").string() + ": valid; 6 runs\n");
  EXPECT_FAULT(sweep({"run.seed=4"}), 2, "command line: run.seed=4: a run has one of `seeds`");
  EXPECT_FAULT(sweep({"init.from=other"}), 2, "command line: init.from=other: ");
  EXPECT_FAULT(sweep({"--kept", "kept.jsonl"}), 2, "--run-dir");
  EXPECT_FAULT(sweep({"--sbatch", "s.sh", "--check"}), 2, "--sbatch");
  EXPECT_FAULT(sweep({"--sbatch", "s.sh", "--json"}), 2, "--sbatch: nothing is compared");
  write_text(tiny_ / "page.html", "mine");
  EXPECT_EQ(sweep({"--html", (tiny_ / "page.html").string()}).code, 2);
  EXPECT_EQ(read_text(tiny_ / "page.html"), "mine");
  fs::create_directories(tiny_ / "runs/plain-2/photos");
  const ProgramResult occupied = sweep();
  EXPECT_EQ(occupied.code, 2);
  EXPECT_NE(occupied.err.find("is there and is no run"), std::string::npos) << occupied.err;
  EXPECT_FALSE(fs::exists(tiny_ / "runs/short-1"));
}

TEST(SweepWords, AreThoseOfAShell) {
  EXPECT_EQ(shell_word("a/b=1e-3"), "a/b=1e-3");
  EXPECT_EQ(shell_word("a=[1, 2]"), "'a=[1, 2]'");
  EXPECT_EQ(shell_word("it's"), "'it'\\''s'");
  EXPECT_EQ(shell_word(""), "''");
}

}  // namespace
}  // namespace quire::test
