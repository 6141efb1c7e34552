#include "trainers/evaluation/needle.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include <algorithm>

#include "core/ranks/in_process.h"
#include "data/tasks/make_task.h"
#include "data/tokenizers/byte_tokenizer.h"
#include "tests/support/expect_error.h"
#include "trainers/evaluation/heat_map.h"

namespace quire {
namespace {

// Reads bytes and keeps them all: what a perfect memory could do.
class Reader : public Predictor {
 public:
  void begin_document() override { text_.clear(); }
  void read(std::span<const int32_t> ids) override {
    max_at_once_ = std::max(max_at_once_, ids.size());
    text_ += ByteTokenizer().decode(ids);
  }
  void keep() override { kept_ = text_; }
  void go_back() override { text_ = kept_; }
  size_t max_at_once() const { return max_at_once_; }

 protected:
  std::string text_;

 private:
  size_t max_at_once_ = 0;
  std::string kept_;
};

// Copies what follows in the needle that was asked for, or walks along the chain.
class Copier : public Reader {
 public:
  int32_t most_likely() override {
    const std::string begun = text_.substr(answer_begin());
    return static_cast<uint8_t>(answer()[begun.size()]);
  }

 private:
  std::string after(const std::string& mark) const {
    const size_t begin = text_.find(mark) + mark.size();
    return text_.substr(begin, text_.find('|', begin) - begin);
  }
  size_t answer_begin() const {
    const size_t path = text_.rfind("|The path from ");
    if (path != std::string::npos) return path + 15 + 5 + 3;
    return text_.rfind(" is") + 3;
  }
  std::string answer() const {
    const size_t path = text_.rfind("|The path from ");
    if (path != std::string::npos) {
      std::string walked;
      std::string at = text_.substr(path + 15, 5);
      const auto step = [&] { return fmt::format("|DEF{}->", at); };
      while (text_.find(step()) != std::string::npos) {
        at = after(step());
        walked += (walked.empty() ? "" : ",") + at;
      }
      return walked;
    }
    const size_t label = text_.find("special magic number for ");
    if (label == std::string::npos) return after("|The passkey is:");
    return after("magic numbers for " + text_.substr(label + 25, text_.find('?', label) - label - 25) + " is:");
  }
};

class Guesser : public Reader {
 public:
  int32_t most_likely() override {
    const auto bits = philox(RandomKey::of(1, 0), hash_scope("guess"), 0, 0, drawn_++);
    return '0' + static_cast<int32_t>(bits[0] % 10);
  }

 private:
  uint32_t drawn_ = 0;
};

class NeedleTest : public testing::Test {
 protected:
  NeedleResult run(Predictor& predictor, const std::string& task, std::vector<int64_t> lengths,
                   std::vector<double> depths, int64_t samples) const {
    const NeedleOptions options{.task = parse_config<TaskConfig>(task, "task"),
                                .lengths = std::move(lengths),
                                .depths = std::move(depths),
                                .samples = samples,
                                .seed = 4};
    return find_needles(predictor, tokenizer_, *filler_, options, {}, Ranks::current());
  }
  ByteTokenizer tokenizer_;
  std::unique_ptr<Filler> filler_ = make_prose_filler(tokenizer_);
};

TEST_F(NeedleTest, ACopierFindsEverything) {
  for (const char* task : {"{task: passkey}", "{task: passkey, align: 64}", "{task: multikey}", "{task: 'hops:1'}",
                           "{task: 'hops:3', keys: 3}"}) {
    Copier copier;
    const bool hops = std::string(task).find("hops") != std::string::npos;
    const NeedleResult result =
        run(copier, task, {1024, 40960}, hops ? std::vector<double>{} : std::vector<double>{0, 0.5, 1}, 4);
    ASSERT_EQ(result.cells.size(), hops ? 2U : 6U);
    for (const NeedleCell& cell : result.cells) {
      EXPECT_EQ(cell.exact, 4) << task << " " << cell.length;
      EXPECT_EQ(cell.one_token, 4) << task << " " << cell.length;
    }
    EXPECT_LE(copier.max_at_once(), 16384U);  // documents come in pieces
  }
}

// Whoever reads a document, the counts are those of one rank; with more ranks than documents, too.
TEST_F(NeedleTest, RanksShareTheDocumentsOut) {
  class HalfCopier : public Copier {
   public:
    int32_t most_likely() override {
      const int32_t right = Copier::most_likely();
      return right % 2 == 0 ? right : 'x';
    }
  };
  const auto counts = [&](const NeedleResult& result) {
    std::vector<std::array<int64_t, 2>> list;
    for (const NeedleCell& cell : result.cells) list.push_back({cell.exact, cell.one_token});
    return list;
  };
  HalfCopier reader;
  const NeedleResult expected = run(reader, "{task: passkey, key: 2}", {256, 40960}, {0, 1}, 3);
  for (const int size : {2, 3, 13}) {
    run_in_process(size, [&](Ranks&) {
      HalfCopier mine;
      const NeedleResult result = run(mine, "{task: passkey, key: 2}", {256, 40960}, {0, 1}, 3);
      EXPECT_EQ(counts(result), counts(expected)) << size;
      EXPECT_EQ(result.tokens, expected.tokens);
    });
  }
}

// Scores of samples are those of one rank too, and are known by their number.
TEST_F(NeedleTest, RanksShareTheRepliesOut) {
  class InTheGarden : public Reader {
   public:
    int32_t most_likely() override {
      const size_t at = text_.size() - text_.rfind("Answer:") - 7;
      return std::string_view(" garden or so.")[std::min<size_t>(at, 13)];
    }
  };
  InTheGarden reader;
  const NeedleResult expected = run(reader, "{task: babi_1}", {700, 900}, {}, 9);
  const double right = expected.cells[0].score() + expected.cells[1].score();
  EXPECT_GT(right, 0);
  EXPECT_LT(right, 2);
  run_in_process(3, [&](Ranks&) {
    InTheGarden mine;
    const NeedleResult result = run(mine, "{task: babi_1}", {700, 900}, {}, 9);
    for (size_t i = 0; i < 2; ++i) {
      EXPECT_EQ(result.cells[i].scores, expected.cells[i].scores);
      EXPECT_EQ(result.cells[i].right_tokens, expected.cells[i].right_tokens);
      EXPECT_EQ(result.cells[i].answer_tokens, expected.cells[i].answer_tokens);
    }
  });
}

// One digit in ten is right by chance, and a key of two digits in a hundred: within five standard deviations of 2000
// samples.
TEST_F(NeedleTest, AGuesserHasChance) {
  Guesser guesser;
  const NeedleCell cell = run(guesser, "{task: passkey, key: 2}", {128}, {}, 2000).cells[0];
  EXPECT_NEAR(static_cast<double>(cell.one_token), 200, 5 * 13.5);
  EXPECT_NEAR(static_cast<double>(cell.exact), 20, 5 * 4.5);
}

// The right answer to another document is wrong, and a wrong token anywhere makes the answer wrong.
TEST_F(NeedleTest, OnlyTheWholeAnswerIsExact) {
  class Spoiled : public Copier {
   public:
    explicit Spoiled(int64_t wrong) : wrong_(wrong) {}
    void begin_document() override {
      Copier::begin_document();
      asked_ = 0;
    }
    int32_t most_likely() override {
      const int32_t right = Copier::most_likely();
      return asked_++ == wrong_ ? 'x' : right;
    }

   private:
    int64_t wrong_;
    int64_t asked_ = 0;
  };
  for (const int64_t wrong : {0, 2, 4}) {
    Spoiled spoiled(wrong);
    const NeedleCell cell = run(spoiled, "{task: passkey}", {512}, {}, 3).cells[0];
    EXPECT_EQ(cell.exact, 0);
    EXPECT_EQ(cell.one_token, wrong == 0 ? 0 : 3);
    // For a chain, the last token is the published one.
    Spoiled lost(wrong);
    EXPECT_EQ(run(lost, "{task: 'hops:1', keys: 1}", {512}, {}, 3).cells[0].one_token, wrong == 4 ? 0 : 3);
  }
}

TEST_F(NeedleTest, LengthsThatDoNotFitAreRefusedBeforeAnythingIsRead) {
  Copier copier;
  EXPECT_ERROR(run(copier, "{task: passkey}", {1024, 60}, {}, 1), ErrorKind::config,
               "needle: length 60 is too short for task passkey");
  EXPECT_ERROR(run(copier, "{task: passkey, align: 64}", {1000}, {}, 1), ErrorKind::config, "not a multiple");
  EXPECT_EQ(copier.max_at_once(), 0U);
}

// Replies to the samples of a task with what a test tells it, whatever it reads.
class Teller : public Predictor {
 public:
  Teller(const NeedleOptions& options, const Filler& filler, std::function<std::string(const std::string&)> reply)
      : reply_(std::move(reply)) {
    for (const int64_t length : options.lengths) {
      TaskConfig config = options.task;
      config.length = length;
      const auto task = make_asking_task(config, {tokenizer_, filler, options.seed, hash_scope("needle")}, "here");
      for (int64_t i = 0; i < options.samples; ++i) documents_.push_back(task->ask(i));
    }
  }
  void begin_document() override {
    ++document_;
    read_ = 0;
  }
  void read(std::span<const int32_t> ids) override { read_ += static_cast<int64_t>(ids.size()); }
  int32_t most_likely() override {
    const AskedDocument& document = *documents_[static_cast<size_t>(document_)];
    const std::string reply = reply_(tokenizer_.decode(document.answer()));
    const auto at = static_cast<size_t>(read_ - document.answer_begin());
    return at < reply.size() ? static_cast<uint8_t>(reply[at]) : tokenizer_.eos_id();
  }
  void keep() override { kept_ = read_; }
  void go_back() override { read_ = kept_; }

 private:
  ByteTokenizer tokenizer_;
  std::function<std::string(const std::string&)> reply_;
  std::vector<std::unique_ptr<AskedDocument>> documents_;
  int64_t document_ = -1;
  int64_t read_ = 0;
  int64_t kept_ = 0;
};

// A reply with the value in other words has the published score, and its tokens count where the answer has them.
TEST_F(NeedleTest, QuestionsAreAnsweredAndRepliedTo) {
  const auto cell_of = [&](const std::string& task, const std::function<std::string(const std::string&)>& reply) {
    const NeedleOptions options{.task = parse_config<TaskConfig>("task: " + task, "task"),
                                .lengths = {1024},
                                .depths = {},
                                .samples = 4,
                                .seed = 2};
    Teller teller(options, *filler_, reply);
    return find_needles(teller, tokenizer_, *filler_, options, {}, Ranks::current()).cells.at(0);
  };
  const NeedleCell right = cell_of("niah_single_2", [](const std::string& answer) { return answer; });
  EXPECT_EQ(right.score(), 1);
  EXPECT_EQ(right.exact, 4);
  EXPECT_EQ(right.right_share(), 1);
  // " 1234567." becomes " the 1234567": of nine tokens of the answer the first is right, and by chance others.
  const NeedleCell wordy = cell_of("niah_single_2", [](const std::string& answer) { return " the" + answer; });
  EXPECT_EQ(wordy.score(), 1);
  EXPECT_EQ(wordy.exact, 0);
  EXPECT_EQ(wordy.answer_tokens, 36);
  EXPECT_GE(wordy.right_tokens, 4);
  EXPECT_LT(wordy.right_tokens, 12);
  // The value comes after the 128 tokens of the reply.
  const NeedleCell late =
      cell_of("niah_single_2", [](const std::string& answer) { return std::string(122, 'x') + answer; });
  EXPECT_EQ(late.score(), 0);
  const NeedleCell half = cell_of("niah_multivalue", [](const std::string& answer) { return answer.substr(0, 18); });
  EXPECT_EQ(half.score(), 0.5);
  EXPECT_EQ(half.scores, std::vector<double>(4, 0.5));
  EXPECT_EQ(cell_of("babi_1", [](const std::string& answer) { return " in the" + answer; }).score(), 1);
  EXPECT_EQ(cell_of("babi_1", [](const std::string&) { return " cellar."; }).score(), 0);
}

// By hand: z = 1.96; with 48 of 50 the interval is (0.96 + z^2/100 -+ z sqrt(0.96 0.04/50 + z^2/10000)) / (1 + z^2/50).
TEST(NeedleInterval, IsWilsons) {
  EXPECT_NEAR(interval_of(0.96, 50).low, 0.8654, 1e-4);
  EXPECT_NEAR(interval_of(0.96, 50).high, 0.9890, 1e-4);
  EXPECT_NEAR(interval_of(0, 50).high, 0.0713, 1e-4);
  EXPECT_EQ(interval_of(0, 50).low, 0);
  EXPECT_EQ(interval_of(1, 1).high, 1);
}

TEST(NeedleOptionsText, LengthsAndDepths) {
  EXPECT_EQ(parse_lengths("1k,300,16M", "--lengths"), (std::vector<int64_t>{1024, 300, int64_t{16} << 20}));
  EXPECT_EQ(format_length(2048), "2k");
  EXPECT_EQ(format_length(int64_t{16} << 20), "16M");
  EXPECT_EQ(format_length(1000), "1000");
  for (const char* text : {"", "k", "1k,", "1x", "-5", "2000M", "1.5k", "1 k"}) {
    EXPECT_ERROR(parse_lengths(text, "--lengths"), ErrorKind::config, "is no length");
  }
  EXPECT_ERROR(parse_lengths("1k,1024", "--lengths"), ErrorKind::config, "given twice");
  EXPECT_EQ(parse_depths("0,0.25,1", "--depths"), (std::vector<double>{0, 0.25, 1}));
  for (const char* text : {"", "2", "-0.1", "nan", "0,,1"}) {
    EXPECT_ERROR(parse_depths(text, "--depths"), ErrorKind::config, "is no depth");
  }
}

TEST(HeatMap, HasACellForEveryValue) {
  const std::string svg = to_svg({.title = "keys & <more>",
                                  .columns_title = "length",
                                  .rows_title = "depth",
                                  .columns = {"1k", "2k", "4k"},
                                  .rows = {"0 %", "100 %"},
                                  .values = {0, 0.5, 1, 1, 0.25, 0}});
  size_t cells = 0;
  for (size_t at = 0; (at = svg.find("<rect x=", at)) != std::string::npos; ++at) ++cells;
  EXPECT_EQ(cells, 6U);
  EXPECT_NE(svg.find("keys &amp; &lt;more&gt;"), std::string::npos);
  for (const char* text : {">25 %<", ">50 %<", ">100 %<", ">4k<", ">depth<", "rgb(255,250,205)", "rgb(37,52,120)"}) {
    EXPECT_NE(svg.find(text), std::string::npos) << text;
  }
}

}  // namespace
}  // namespace quire
