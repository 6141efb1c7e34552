#include "trainers/evaluation/needle.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <array>

#include <algorithm>

#include "core/ranks/in_process.h"
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
  size_t max_at_once() const { return max_at_once_; }

 protected:
  std::string text_;

 private:
  size_t max_at_once_ = 0;
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
