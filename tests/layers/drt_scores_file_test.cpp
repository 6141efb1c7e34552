// Scores of chunks from a file: choices that a model made give its values again, in every cut of the document; files of
// another form are refused by line.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>

#include "layers/pass/host_values.h"
#include "tests/layers/drt_stack_reader.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace quire::test {
namespace {

constexpr int64_t kPositions = 30;  // ten chunks of two tokens with their landmarks

// A line of the file: what a chunk of a document chose.
std::string line_of(size_t chunk, const std::vector<int64_t>& indices, const std::vector<double>& scores) {
  return fmt::format(R"({{"document": "book", "chunk": {}, "indices": [{}], "scores": [{}]}})", chunk,
                     fmt::join(indices, ", "), fmt::join(scores, ", ")) +
         "\n";
}

class DrtScoresFile : public testing::Test {
 protected:
  std::string write(const std::string& text) {
    const std::string path = folder_ / "scores.jsonl";
    std::ofstream(path) << text;
    return path;
  }
  // Writes lists as the choices of chunks 0, 1, ... of document "book", the first entries with the largest scores.
  std::string write(const std::vector<std::vector<int64_t>>& lists) {
    std::string text;
    for (size_t chunk = 0; chunk < lists.size(); ++chunk) {
      std::vector<double> scores;
      for (size_t k = 0; k < lists[chunk].size(); ++k) scores.push_back(-static_cast<double>(k));
      text += line_of(chunk, lists[chunk], scores);
    }
    return write(text);
  }
  TemporaryDirectory folder_;
};

// Reads the document in passes of the given length; returns the values, and what each chunk chose.
std::pair<std::vector<double>, std::vector<std::vector<int64_t>>> read_all(const DrtConfig& drt, int64_t pass,
                                                                           int64_t piece = 1024) {
  StackReader reader(small_model(), drt, pass);
  reader.document = "book";
  ChunkHooks hooks;
  hooks.piece = piece;
  reader.set_hooks(hooks);
  std::vector<double> values;
  std::vector<std::vector<int64_t>> lists(kPositions / 3);
  for (int64_t begin = 0; begin < kPositions; begin += pass) {
    const int64_t end = std::min(kPositions, begin + pass);
    Tape tape(false);
    const Variable y = reader.read(tape, slice(tape, states(kPositions), 1, begin, end));
    for (const double value : values_on_host(y.value())) values.push_back(value);
    for (int64_t t = begin; t < end; ++t) {
      if (t % 3 != 0 || t == 0) continue;
      for (const auto& [chunk, weight] : reader.of(t - begin)) lists[static_cast<size_t>(t / 3 - 1)].push_back(chunk);
    }
  }
  return {values, lists};
}

TEST_F(DrtScoresFile, ChoicesOfAModelGiveItsValuesAgain) {
  const DrtConfig drt = small_stack();
  DrtConfig given = drt;
  given.scores = ChunkScores::file;
  for (const int64_t pass : {kPositions, int64_t{7}, int64_t{3}, int64_t{1}}) {
    const auto [expected, lists] = read_all(drt, pass);
    ASSERT_EQ(lists[8].size(), 2U);
    given.scores_file = write(lists);
    const auto [values, chosen] = read_all(given, pass);
    EXPECT_EQ(chosen, lists) << "passes of " << pass;
    EXPECT_EQ(values, expected) << "passes of " << pass;
  }
}

TEST_F(DrtScoresFile, FewerIndicesReadFewerChunksAndScoresWeigh) {
  DrtConfig drt = small_stack();
  drt.scores = ChunkScores::file;
  drt.weights = ChunkWeights::scores;
  drt.temperature = 2;
  std::string text;
  for (size_t chunk = 0; chunk < 10; ++chunk) {
    text += chunk == 5   ? line_of(chunk, {4, -1, 1}, {2, 9, 4})
            : chunk == 6 ? line_of(chunk, {3}, {-7})
                         : line_of(chunk, {}, {});
  }
  drt.scores_file = write(text);
  StackReader reader(small_model(), drt, kPositions);
  reader.document = "book";
  Tape tape(false);
  reader.read(tape, states(kPositions));
  const auto of_six = reader.of(18);
  ASSERT_EQ(of_six.size(), 2U);
  EXPECT_EQ(of_six[0].first, 1);
  EXPECT_NEAR(of_six[0].second, 1 / (1 + std::exp(-1.0)), 1e-7);
  EXPECT_EQ(of_six[1].first, 4);
  EXPECT_EQ(reader.of(21), (std::vector<std::pair<int64_t, double>>{{3, 1.0}}));
  EXPECT_TRUE(reader.of(24).empty());
}

// Scores that are given exist for a piece of the store at a time, and choose the same, ties to the older.
TEST_F(DrtScoresFile, PiecesOfTheStoreAreComparedAsOne) {
  std::string text;
  for (int64_t chunk = 0; chunk < 10; ++chunk) {
    std::vector<int64_t> indices;
    std::vector<double> scores;
    for (int64_t k = 0; k < chunk; k += 1 + chunk % 2) {
      indices.push_back(k);
      scores.push_back(static_cast<double>(k % 3));
    }
    text += line_of(static_cast<size_t>(chunk), indices, scores);
  }
  DrtConfig drt = small_stack();
  drt.weights = ChunkWeights::scores;
  for (const ChunkScores scores : {ChunkScores::file, ChunkScores::bm25}) {
    drt.scores = scores;
    drt.scores_file.reset();
    if (scores == ChunkScores::file) drt.scores_file = write(text);
    const auto whole = read_all(drt, 6);
    ASSERT_EQ(whole.second[8].size(), 2U);
    for (const int64_t piece : {1, 2, 3}) EXPECT_EQ(read_all(drt, 6, piece), whole) << piece;
  }
}

TEST_F(DrtScoresFile, DocumentsThatTheFileDoesNotKnowAreRefused) {
  DrtConfig drt = small_stack();
  drt.scores = ChunkScores::file;
  const auto read = [&](const std::string& document, size_t known) {
    drt.scores_file = write(std::vector<std::vector<int64_t>>(known));
    StackReader reader(small_model(), drt, kPositions);
    reader.document = document;
    Tape tape(false);
    reader.read(tape, states(kPositions));
  };
  EXPECT_NO_THROW(read("book", 10));
  EXPECT_ERROR(read("book", 9), ErrorKind::data, "has scores for 9 chunks, and not for chunk 9");
  EXPECT_ERROR(read("other", 10), ErrorKind::data, "there are no scores of document other");
  EXPECT_ERROR(read("", 10), ErrorKind::config, "have no name");
}

TEST_F(DrtScoresFile, FilesOfAnotherFormAreRefusedByLine) {
  const std::string good = R"({"document": "a", "chunk": 0, "indices": [], "scores": []})";
  const auto second = [](const std::string& rest) { return R"({"document": "a", "chunk": 1, )" + rest + "}"; };
  const std::vector<std::pair<std::string, std::string>> bad{
      {"no json", "not of the form"},
      {"[]", "not of the form"},
      {R"({"document": "a", "chunk": 1})", "not of the form"},
      {R"({"document": 3, "chunk": 1, "indices": [], "scores": []})", "not of the form"},
      {second(R"("indices": [0], "scores": [1], "more": 2)"), "nothing else"},
      {second(R"("indices": [0], "scores": [])"), "as many indices as scores"},
      {second(R"("indices": [1], "scores": [1])"), "none before it"},
      {second(R"("indices": [-2], "scores": [1])"), "not of the form"},
      {second(R"("indices": [0.5], "scores": [1])"), "not of the form"},
      {second(R"("indices": [0], "scores": ["1"])"), "no finite number"},
      {second(R"("indices": [0], "scores": [1e300])"), "no finite number"},
      {second(R"("indices": [0, 0], "scores": [1, 2])"), "named twice"},
      {R"({"document": "a", "chunk": 2, "indices": [], "scores": []})", "where chunk 1 comes next"},
      {R"({"document": "a", "chunk": -1, "indices": [], "scores": []})", "not of the form"},
  };
  EXPECT_NO_THROW(ChunkScoresFile{write(good + "\n\n" + second(R"("indices": [0], "scores": [1])"))});
  for (const auto& [line, reason] : bad) {
    const std::string path = write(good + "\n" + line + "\n");
    try {
      ChunkScoresFile file(path);
      ADD_FAILURE() << line;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data) << line;
      EXPECT_EQ(std::string(error.what()).find(path + ":2: "), 0U) << error.what();
      EXPECT_NE(std::string(error.what()).find(reason), std::string::npos) << error.what();
    }
  }
  EXPECT_THROW(ChunkScoresFile{write("")}, Error);
  EXPECT_THROW(ChunkScoresFile{(folder_ / "none").string()}, Error);
}

}  // namespace
}  // namespace quire::test
