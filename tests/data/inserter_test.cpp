// Tests the tokens that a model inserts: wherever a text is cut, they have the right positions and every target counts
// once.
#include "data/batches/inserter.h"

#include <gtest/gtest.h>

#include <set>

#include "data/batches/batch_source.h"
#include "tests/support/batches.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

using test::equal;
using test::take;

constexpr int32_t kBos = 256;
constexpr int32_t kEos = 257;
constexpr int32_t kVocabulary = 258;

const std::vector<Insertion> kInsertions{{.period = 1, .ids = 1},
                                         {.period = 1, .ids = 2},
                                         {.period = 3, .ids = 1},
                                         {.period = 4, .ids = 3},
                                         {.period = 50, .ids = 1},
                                         {.period = 1, .ids = 2, .predicted = true},
                                         {.period = 3, .ids = 1, .predicted = true},
                                         {.period = 4, .ids = 3, .predicted = true}};

// One model position. Inserted tokens that are not predicted have the target -1.
struct Cell {
  int32_t token = 0;
  int32_t target = -1;
  bool operator==(const Cell&) const = default;
};

// Inserts tokens from the front into tokens that are read as one text.
std::vector<Cell> with_inserted(const std::vector<Cell>& tokens, const Insertion& insertion) {
  std::vector<Cell> cells;
  int32_t inserted = 0;
  const auto insert = [&](size_t token) {
    if (token == 0 || static_cast<int64_t>(token) % insertion.period != 0) return;
    Cell cell{kVocabulary + inserted++ % static_cast<int32_t>(insertion.ids)};
    if (insertion.predicted) {
      cell.target = cells.back().target;
      cells.back().target = cell.token;
    }
    cells.push_back(cell);
  };
  for (size_t i = 0; i < tokens.size(); ++i) {
    insert(i);
    cells.push_back(tokens[i]);
  }
  if (insertion.predicted) insert(tokens.size());
  return cells;
}

class InserterTest : public testing::Test {
 protected:
  // Lengths with BOS: one token, shorter than a period, exactly one period of 3 and of 4, several.
  void SetUp() override {
    test::write_corpus(folder_ / "c.h5", {{"train", test::texts_of_lengths({1, 2, 3, 17, 5, 8, 4, 30, 1, 11})}});
    corpus_ = Corpus::open(folder_ / "c.h5");
  }

  BatchOptions options(const Insertion& insertion, int64_t subsequence, int64_t rows) const {
    return {
        .data = {.subsequence = subsequence, .rows = rows}, .first_row = 0, .last_row = rows, .insertion = insertion};
  }

  std::vector<Cell> tokens_of(int64_t document) const {
    const Split& split = corpus_->split("train");
    std::vector<int32_t> ids(static_cast<size_t>(split.length(document)));
    split.tokens(document, 0, split.length(document), ids.data());
    std::vector<Cell> cells{{kBos}};
    for (const int32_t id : ids) {
      cells.back().target = id;
      cells.push_back({id});
    }
    cells.back().target = kEos;
    return cells;
  }
  std::vector<Cell> stream() const {
    std::vector<Cell> cells;
    for (int64_t document = 0; document < corpus_->split("train").documents(); ++document) {
      for (const Cell& cell : tokens_of(document)) cells.push_back(cell);
    }
    return cells;
  }

  // A position of a batch, with everything that must follow from what it is.
  static Cell cell_at(const Batch& batch, size_t i) {
    const bool inserted = batch.inserted[i] != 0;
    EXPECT_EQ(inserted, batch.tokens[i] >= kVocabulary);
    const bool counts = batch.loss_mask[i] != 0;
    // Inserted tokens are predicted, but do not count.
    const bool predicts_inserted = batch.targets[i] >= kVocabulary;
    EXPECT_FALSE(counts && predicts_inserted);
    if (!counts && !predicts_inserted) {
      EXPECT_TRUE(inserted);
      EXPECT_EQ(batch.targets[i], 0);
    }
    return {batch.tokens[i], counts || predicts_inserted ? batch.targets[i] : -1};
  }
  static void expect_count(const Batch& batch) {
    int64_t counted = 0;
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
      counted += batch.loss_mask[i];
      if (batch.segment[i] < 0) {
        EXPECT_EQ(batch.tokens[i] + batch.targets[i] + batch.inserted[i] + batch.loss_mask[i], 0);
      }
    }
    EXPECT_EQ(batch.target_count, counted);
  }

  test::TemporaryDirectory folder_;
  std::unique_ptr<Corpus> corpus_;
};

TEST_F(InserterTest, ByHand) {
  test::write_corpus(folder_ / "d.h5", {{"train", {"abcdef", "gh", "ijk"}}});
  corpus_ = Corpus::open(folder_ / "d.h5");
  BatchOptions tested = options({.period = 3, .ids = 2}, 8, 1);
  tested.data.pack = Pack::concat;
  tested.alignment = 4;
  tested.shuffle = tested.endless = false;
  BatchSource source(*corpus_, "train", tested);
  // BOS a b | c d e | f, and after it the next document at a multiple of 4.
  const Batch first = source.next()->batch;
  EXPECT_EQ(first.tokens, (std::vector<int32_t>{kBos, 'a', 'b', 258, 'c', 'd', 'e', 259}));
  EXPECT_EQ(first.targets, (std::vector<int32_t>{'a', 'b', 'c', 0, 'd', 'e', 'f', 0}));
  EXPECT_EQ(first.loss_mask, (std::vector<uint8_t>{1, 1, 1, 0, 1, 1, 1, 0}));
  EXPECT_EQ(first.inserted, (std::vector<uint8_t>{0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(first.position, (std::vector<int32_t>{0, 1, 2, 3, 4, 5, 6, 7}));
  EXPECT_EQ(first.segment, std::vector<int32_t>(8, 0));
  EXPECT_EQ(first.target_count, 6);
  const Batch second = source.next()->batch;
  EXPECT_EQ(second.tokens, (std::vector<int32_t>{'f', 0, 0, 0, kBos, 'g', 'h', 0}));
  EXPECT_EQ(second.targets, (std::vector<int32_t>{kEos, 0, 0, 0, 'g', 'h', kEos, 0}));
  EXPECT_EQ(second.position, (std::vector<int32_t>{8, 0, 0, 0, 0, 1, 2, 0}));
  EXPECT_EQ(second.segment, (std::vector<int32_t>{0, -1, -1, -1, 1, 1, 1, -1}));
  EXPECT_EQ(second.starts, std::vector<uint8_t>{0});
  const Batch third = source.next()->batch;
  EXPECT_EQ(third.tokens, (std::vector<int32_t>{kBos, 'i', 'j', 258, 'k', 0, 0, 0}));
  EXPECT_EQ(third.targets, (std::vector<int32_t>{'i', 'j', 'k', 0, kEos, 0, 0, 0}));
  EXPECT_FALSE(source.next().has_value());
}

TEST_F(InserterTest, EveryCutReadsEveryDocumentOnce) {
  for (const Insertion& insertion : kInsertions) {
    for (const Pack pack : {Pack::pad, Pack::concat}) {
      for (const int64_t subsequence : {1, 2, 3, 4, 5, 8, 13, 100}) {
        for (const int64_t rows : {1, 3}) {
          BatchOptions once = options(insertion, subsequence, rows);
          once.data.pack = pack;
          once.alignment = subsequence % 2 == 0 ? 2 : 1;
          once.shuffle = once.endless = false;
          BatchSource source(*corpus_, "train", once);
          std::vector<std::vector<Cell>> seen(static_cast<size_t>(corpus_->split("train").documents()));
          for (const CursoredBatch& next : take(source, 1000)) {
            expect_count(next.batch);
            for (size_t i = 0; i < next.batch.tokens.size(); ++i) {
              if (next.batch.segment[i] < 0) continue;
              std::vector<Cell>& cells = seen[static_cast<size_t>(next.batch.document[i])];
              ASSERT_EQ(next.batch.position[i], static_cast<int32_t>(cells.size()));
              cells.push_back(cell_at(next.batch, i));
            }
          }
          for (size_t document = 0; document < seen.size(); ++document) {
            ASSERT_EQ(seen[document], with_inserted(tokens_of(static_cast<int64_t>(document)), insertion))
                << "document " << document << ", period " << insertion.period << ", subsequence " << subsequence;
          }
        }
      }
    }
  }
}

TEST_F(InserterTest, AnEpochOfColumnsReadsEverythingOnce) {
  const std::vector<Cell> all = stream();
  for (const Insertion& insertion : kInsertions) {
    for (const int64_t rows : {1, 2, 3, 7}) {
      for (const int64_t subsequence : {1, 2, 5, 8, 30}) {
        BatchOptions tested = options(insertion, subsequence, rows);
        tested.data.sampling = Sampling::columns;
        tested.endless = false;
        BatchSource source(*corpus_, "train", tested);
        std::vector<std::vector<Cell>> columns(static_cast<size_t>(rows));
        for (const CursoredBatch& next : take(source, 1000)) {
          const Batch& batch = next.batch;
          expect_count(batch);
          for (int64_t row = 0; row < rows; ++row) {
            std::vector<Cell>& column = columns[static_cast<size_t>(row)];
            EXPECT_EQ(batch.starts[static_cast<size_t>(row)], column.empty() ? 1 : 0);
            for (int64_t t = 0; t < subsequence; ++t) {
              const auto i = static_cast<size_t>(batch.at(row, t));
              if (batch.segment[i] < 0) continue;
              ASSERT_EQ(batch.segment[i], 0);
              ASSERT_EQ(batch.position[i], static_cast<int32_t>(column.size()));
              column.push_back(cell_at(batch, i));
            }
          }
        }
        // Each column is a text of its own, as far as inserted tokens are concerned.
        auto next = all.begin();
        for (const std::vector<Cell>& column : columns) {
          const auto tokens =
              std::count_if(column.begin(), column.end(), [](const Cell& c) { return c.token < kVocabulary; });
          ASSERT_LE(tokens, all.end() - next);
          ASSERT_EQ(column, with_inserted({next, next + tokens}, insertion)) << "rows " << rows;
          next += tokens;
        }
        ASSERT_TRUE(next == all.end());
      }
    }
  }
}

TEST_F(InserterTest, WindowsAreSlicesOfTheTextWithInsertedTokens) {
  for (const Insertion& insertion : kInsertions) {
    const std::vector<Cell> all = with_inserted(stream(), insertion);
    BatchOptions tested = options(insertion, 12, 4);
    tested.data.sampling = Sampling::windows;
    BatchSource source(*corpus_, "train", tested);
    std::set<bool> begins_inserted;
    for (int step = 0; step < 100; ++step) {
      const Batch batch = source.next()->batch;
      expect_count(batch);
      for (int64_t row = 0; row < 4; ++row) {
        std::vector<Cell> window;
        for (int64_t t = 0; t < 12; ++t) {
          const auto i = static_cast<size_t>(batch.at(row, t));
          ASSERT_EQ(batch.position[i], t);
          ASSERT_EQ(batch.segment[i], 0);
          window.push_back(cell_at(batch, i));
        }
        ASSERT_NE(std::search(all.begin(), all.end(), window.begin(), window.end()), all.end());
        begins_inserted.insert(window.front().token >= kVocabulary);
      }
    }
    EXPECT_TRUE(begins_inserted.count(false) == 1);
    if (insertion.period < 5) {
      EXPECT_EQ(begins_inserted.size(), 2U) << "some begin with an inserted token";
    }
  }
}

TEST_F(InserterTest, AShortTextIsOneWindow) {
  const Insertion insertion{.period = 3, .ids = 1};
  BatchOptions tested = options(insertion, 300, 1);
  tested.data.sampling = Sampling::windows;
  const Batch batch = BatchSource(*corpus_, "train", tested).next()->batch;
  const auto tokens = static_cast<int64_t>(stream().size());
  EXPECT_EQ(batch.target_count, tokens);
  EXPECT_EQ(std::count(batch.segment.begin(), batch.segment.end(), 0), insertion.positions(tokens));
}

TEST_F(InserterTest, ResumesFromEveryCursorAndSplitsIntoRanks) {
  for (const Sampling sampling : {Sampling::documents, Sampling::windows, Sampling::columns}) {
    for (const Insertion& insertion : kInsertions) {
      BatchOptions tested = options(insertion, 6, 3);
      tested.data.sampling = sampling;
      tested.data.pack = Pack::concat;
      BatchSource source(*corpus_, "train", tested);
      BatchOptions last = tested;
      last.first_row = 2;
      BatchSource rank(*corpus_, "train", last);
      const std::vector<CursoredBatch> all = take(source, 40);
      for (size_t i = 0; i + 1 < all.size(); ++i) {
        const Cursor cursor = cursor_from_json(cursor_to_json(all[i].after));
        BatchSource resumed(*corpus_, "train", tested, cursor);
        ASSERT_TRUE(equal(*resumed.next(), all[i + 1])) << "resumed after " << i;
        ASSERT_TRUE(equal(rank.next()->batch, all[i].batch.row_block(2, 3))) << i;
      }
    }
  }
}

// Documents with marks, as generated tasks have them.
class MarkedDocuments : public Documents {
 public:
  int64_t length(int64_t /*document*/) const override { return 4; }
  void tokens(int64_t /*document*/, int64_t begin, int64_t count, int32_t* out) const override {
    const std::vector<int32_t> ids{10, 11, 12, beyond};
    std::copy_n(ids.begin() + begin, count, out);
  }
  void marks(int64_t /*document*/, int64_t begin, int64_t count, uint8_t* out) const override {
    const std::vector<uint8_t> marks{0, kCounted, 0, kCounted | kRecalled, kCounted};
    std::copy_n(marks.begin() + begin, count, out);
  }
  bool marked() const override { return true; }
  int32_t beyond = 13;
};

TEST_F(InserterTest, MarksGoWithTheirTokens) {
  const MarkedDocuments documents;
  const Packer packer(documents, corpus_->tokenizer(), options({.period = 2, .ids = 1}, 8, 1));
  const Batch batch = packer.pack(std::vector<Piece>{{.count = 7}});
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{kBos, 10, 258, 11, 12, 258, 13, 0}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{0, 11, 0, 0, 13, 0, kEos, 0}));
  EXPECT_EQ(batch.loss_mask, (std::vector<uint8_t>{0, 1, 0, 0, 1, 0, 1, 0}));
  EXPECT_EQ(batch.recalled, (std::vector<uint8_t>{0, 0, 0, 0, 1, 0, 0, 0}));
  EXPECT_EQ(batch.target_count, 3);
}

TEST_F(InserterTest, PredictedTokensTakeOverTheTargetAndItsMarks) {
  const MarkedDocuments documents;
  const auto pack = [&](int64_t period, const Piece& piece) {
    const Packer packer(documents, corpus_->tokenizer(),
                        options({.period = period, .ids = 1, .predicted = true}, 8, 1));
    return packer.pack(std::vector<Piece>{piece});
  };
  const Batch batch = pack(2, {.count = 7});
  EXPECT_EQ(batch.tokens, (std::vector<int32_t>{kBos, 10, 258, 11, 12, 258, 13, 0}));
  EXPECT_EQ(batch.targets, (std::vector<int32_t>{0, 258, 11, 0, 258, 13, kEos, 0}));
  EXPECT_EQ(batch.loss_mask, (std::vector<uint8_t>{0, 0, 1, 0, 0, 1, 1, 0}));
  EXPECT_EQ(batch.recalled, (std::vector<uint8_t>{0, 0, 0, 0, 0, 1, 0, 0}));
  EXPECT_EQ(batch.target_count, 3);
  // A piece that begins with an inserted token, and one that is nothing else.
  const Batch begun = pack(2, {.count = 2, .offset = 2, .place = 2, .phase = 2});
  EXPECT_EQ(begun.tokens, (std::vector<int32_t>{258, 11, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(begun.targets, (std::vector<int32_t>{11, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(begun.target_count, 1);
  const Batch alone = pack(2, {.count = 1, .offset = 4, .place = 5, .phase = 5});
  EXPECT_EQ(alone.targets, (std::vector<int32_t>{13, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(alone.recalled, (std::vector<uint8_t>{1, 0, 0, 0, 0, 0, 0, 0}));
  EXPECT_EQ(alone.target_count, 1);
  // Nor is an inserted token in the loss where the target that it takes over is not.
  const Batch uncounted = pack(3, {.count = 6});
  EXPECT_EQ(uncounted.tokens, (std::vector<int32_t>{kBos, 10, 11, 258, 12, 13, 0, 0}));
  EXPECT_EQ(uncounted.targets, (std::vector<int32_t>{0, 11, 0, 0, 13, kEos, 0, 0}));
  EXPECT_EQ(pack(3, {.count = 1, .offset = 3, .place = 3, .phase = 3}).targets, std::vector<int32_t>(8, 0));
}

// The first target is left out wherever it stands: at BOS, or at an inserted token behind BOS.
TEST_F(InserterTest, FirstTokensAreLeftOutOfEveryCut) {
  int64_t others = 0;
  for (int64_t document = 0; document < corpus_->split("train").documents(); ++document) {
    others += corpus_->split("train").length(document);
  }
  for (const Insertion& insertion : kInsertions) {
    for (const int64_t subsequence : {1, 2, 3, 8}) {
      BatchOptions once = options(insertion, subsequence, 2);
      once.shuffle = once.endless = once.data.score_first_token = false;
      BatchSource source(*corpus_, "train", once);
      int64_t counted = 0;
      for (const CursoredBatch& next : take(source, 1000)) {
        expect_count(next.batch);
        counted += next.batch.target_count;
      }
      EXPECT_EQ(counted, others);
    }
  }
}

TEST_F(InserterTest, AnIdThatCouldBeInsertedIsRefused) {
  MarkedDocuments documents;
  for (const int32_t id : {kVocabulary, kVocabulary + 7, -1}) {
    documents.beyond = id;
    for (const Insertion& insertion : {Insertion{}, Insertion{.period = 2, .ids = 1}}) {
      const Packer packer(documents, corpus_->tokenizer(), options(insertion, 8, 1));
      EXPECT_ERROR(packer.pack(std::vector<Piece>{{.count = 5}}), ErrorKind::data,
                   "document 0: token id " + std::to_string(id) + " is outside the tokenizer's vocabulary of 258");
    }
  }
}

}  // namespace
}  // namespace quire
