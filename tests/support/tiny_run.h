// A tiny corpus and configuration in a temporary folder, and what tests compare of the runs made with them.
#pragma once

#include <gtest/gtest.h>

#include <fstream>

#include "tests/support/compare.h"
#include "tests/support/program.h"
#include "tests/support/small_corpus.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/run/metrics.h"

namespace quire::test {

inline const char* const kTinyConfig = R"(run: {name: tiny, seed: 3, threads: 1}
data: {corpus: corpus.h5, split: train, subsequence: 16, rows: 3}
model:
  width: 16
  layers: 2
  heads: 2
  mlp: {kind: swiglu, hidden: 24}
  position: {kind: xl}
  attention: {softmax: {carry: {kind: hidden, length: 12}}}
optimizer: {lr: 1e-2}
schedule: {kind: cosine, warmup: 2, steps: 20}
evaluate: {every: 0, split: valid, rows: 2}
checkpoint: {every: 10, keep: 3}
log: {every: 1}
)";

inline void write_text(const std::filesystem::path& path, const std::string& text) {
  std::ofstream stream(path, std::ios::binary);
  stream << text;
  ASSERT_TRUE(stream.flush().good()) << path;
}

inline std::string read_text(const std::filesystem::path& path) {
  std::ifstream stream(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), std::istreambuf_iterator<char>()};
}

class TinyRun {
 public:
  TinyRun() {
    write_corpus(corpus(),
                 {{"train", texts_of_lengths({300, 7, 90, 1, 41, 150})}, {"valid", texts_of_lengths({60, 5})}});
    write_text(config(), kTinyConfig);
  }
  std::filesystem::path operator/(const std::string& name) const { return folder_ / name; }
  std::filesystem::path corpus() const { return folder_ / "corpus.h5"; }
  std::filesystem::path config() const { return folder_ / "run.yaml"; }
  std::filesystem::path checkpoint(const std::string& run, int64_t step) const {
    return folder_ / run / "checkpoints" /
           ("step-" + std::string(8 - std::to_string(step).size(), '0') + std::to_string(step));
  }

  std::vector<std::string> train_arguments(const std::string& run,
                                           const std::vector<std::string>& overrides = {}) const {
    std::vector<std::string> arguments{"train", config().string(), "--run-dir", (folder_ / run).string()};
    arguments.insert(arguments.end(), overrides.begin(), overrides.end());
    return arguments;
  }
  std::vector<std::string> resume_arguments(const std::filesystem::path& from,
                                            const std::vector<std::string>& overrides = {}) const {
    std::vector<std::string> arguments{"train", "--resume", from.string()};
    arguments.insert(arguments.end(), overrides.begin(), overrides.end());
    return arguments;
  }
  ProgramResult train(const std::string& run, const std::vector<std::string>& overrides = {}) const {
    return run_quire(train_arguments(run, overrides));
  }
  ProgramResult resume(const std::string& run, const std::vector<std::string>& overrides = {}) const {
    return run_quire(resume_arguments(folder_ / run, overrides));
  }

 private:
  TemporaryDirectory folder_;
};

// Returns metrics without times, rates and peak memory, which differ between any two runs.
inline std::vector<nlohmann::ordered_json> comparable_metrics(const std::filesystem::path& run) {
  std::vector<nlohmann::ordered_json> lines = read_metrics(run / "metrics.jsonl");
  for (nlohmann::ordered_json& line : lines) {
    for (const char* key : {"tokens_per_second", "step_ms", "peak_bytes", "overlap", "exchange_ms"}) line.erase(key);
    if (line.contains("evaluation")) line["evaluation"].erase("seconds");
  }
  return lines;
}

// Every tensor and text of every part and every raw file, bit for bit, and where the data stood.
inline void expect_same_checkpoint(const std::filesystem::path& left, const std::filesystem::path& right) {
  const CheckpointReader a = CheckpointReader::open(left);
  const CheckpointReader b = CheckpointReader::open(right);
  EXPECT_EQ(a.meta(), b.meta());
  ASSERT_EQ(a.parts(), b.parts());
  for (const std::string& name : a.parts()) {
    const CheckpointPart x = a.read_part(name);
    const CheckpointPart y = b.read_part(name);
    ASSERT_EQ(x.tensors.size(), y.tensors.size()) << name;
    EXPECT_EQ(x.texts, y.texts) << name;
    for (size_t i = 0; i < x.tensors.size(); ++i) {
      EXPECT_EQ(x.tensors[i].name, y.tensors[i].name);
      EXPECT_TRUE(same_bits(x.tensors[i].tensor, y.tensors[i].tensor)) << name << ": " << x.tensors[i].name;
    }
  }
  const auto raw_files = [](const std::filesystem::path& checkpoint) {
    std::vector<std::string> names;
    for (const ManifestFile& file : Manifest::read(checkpoint).files) {
      if (file.name.ends_with(".rows")) names.push_back(file.name);
    }
    return names;
  };
  const std::vector<std::string> names = raw_files(left);
  ASSERT_EQ(names, raw_files(right));
  ASSERT_FALSE(names.empty());
  for (const std::string& name : names) EXPECT_TRUE(read_text(left / name) == read_text(right / name)) << name;
}

}  // namespace quire::test
