// Tests what of a document counts in an evaluation: overlapping windows (--stride) and its end (--last).
#include "data/batches/strided_windows.h"

#include "core/ranks/in_process.h"
#include "data/corpus/corpus_on_ranks.h"
#include "layers/state/state_pool.h"
#include "tests/support/expect_error.h"
#include "tests/support/tiny_run.h"
#include "trainers/evaluation/evaluator.h"
#include "trainers/setup/evaluation_config.h"

namespace quire::test {
namespace {

constexpr int64_t kWindow = 16;

using Count = std::optional<int64_t>;

EvaluationOptions options_of(int64_t rows, Count stride, Count last = {}, Count bin_width = {}) {
  EvaluationOptions options;
  options.rows = rows;
  options.stride = stride;
  options.last = last;
  options.bin_width = bin_width;
  return options;
}

class EvaluationWindows : public ::testing::Test {
 protected:
  EvaluationWindows() {
    write_corpus(folder_ / "c.h5", {{"valid", texts_of_lengths({1, 83, kWindow - 2, kWindow - 1, kWindow, 40, 2})}});
  }

  static RunConfig config_with(const std::vector<std::string>& overrides = {}) {
    std::vector<std::string> all{"model.initialization.std=0.4", "run.precision=f64"};
    all.insert(all.end(), overrides.begin(), overrides.end());
    return parse_config<RunConfig>(kTinyConfig, "tiny", all);
  }

  EvaluationResult read(EvaluationOptions options, const RunConfig& config = config_with()) const {
    Ranks one;
    return read_on(one, std::move(options), config);
  }

  EvaluationResult read_on(Ranks& ranks, EvaluationOptions options, const RunConfig& config = config_with()) const {
    const std::unique_ptr<Corpus> corpus = open_corpus_on_ranks(folder_ / "c.h5", Verify::always, {}, ranks);
    const Machine machine = Machine::choose(config.run);
    ParameterStore store;
    const Network network(store, config.model, corpus->tokenizer().vocabulary_size(), machine.dtype);
    store.allocate(machine.dtype, machine.device, 5);
    options.split = "valid";
    options.each_target = true;
    options.ranks = &ranks;
    return evaluate(store, config, *corpus, machine, options);
  }

  TemporaryDirectory folder_;
};

// Reads one window of a document by itself, with a forward pass of its own, and returns the losses of its targets.
std::vector<double> losses_of_window(const Split& split, const Tokenizer& tokenizer, const RunConfig& config,
                                     int64_t document, int64_t begin, int64_t count) {
  const Machine machine = Machine::choose(config.run);
  ParameterStore store;
  Network network(store, config.model, tokenizer.vocabulary_size(), machine.dtype);
  store.allocate(machine.dtype, machine.device, 5);
  StatePool state(network.declared.state, 1, count, machine.dtype, machine.device, machine.scratch);
  std::vector<int32_t> text(static_cast<size_t>(split.length(document)));
  split.tokens(document, 0, split.length(document), text.data());
  text.insert(text.begin(), tokenizer.bos_id());
  text.push_back(tokenizer.eos_id());
  Batch batch = Batch::empty(1, count);
  for (int64_t i = 0; i < count; ++i) {
    const auto at = static_cast<size_t>(i);
    batch.tokens[at] = text[static_cast<size_t>(begin + i)];
    batch.targets[at] = text[static_cast<size_t>(begin + i) + 1];
    batch.loss_mask[at] = 1;
    batch.segment[at] = 0;
    batch.position[at] = static_cast<int32_t>(i);
    batch.document[at] = document;
  }
  batch.starts[0] = 1;
  batch.target_count = count;
  state.begin_step(batch);
  Tape tape(false);
  return network.model.score({.tape = tape, .batch = batch, .state = state.view(0, 1)}, {}).nll.to_vector<double>();
}

// The definition: target t counts in the first window that has it, and that window is read by itself.
TEST_F(EvaluationWindows, EveryTargetHasTheLossOfItsOwnWindow) {
  const auto corpus = Corpus::open(folder_ / "c.h5");
  const Split& split = corpus->split("valid");
  const RunConfig config = config_with();
  for (const int64_t stride : {int64_t{1}, int64_t{5}, kWindow}) {
    const EvaluationResult result = read(options_of(3, stride));
    auto target = result.targets.begin();
    for (int64_t document = 0; document < split.documents(); ++document) {
      const int64_t targets = split.length(document) + 1;
      for (int64_t t = 0; t < targets; ++t, ++target) {
        int64_t begin = 0;
        while (begin + kWindow <= t) begin += stride;
        const int64_t count = std::min(kWindow, targets - begin);
        const std::vector<double> window = losses_of_window(split, corpus->tokenizer(), config, document, begin, count);
        ASSERT_EQ(target->document, document);
        ASSERT_EQ(target->position, t);
        ASSERT_NEAR(target->nll, window[static_cast<size_t>(t - begin)], 1e-9) << document << " " << t;
      }
    }
    EXPECT_EQ(target, result.targets.end());
    EXPECT_EQ(result.tokens, 178);
    EXPECT_FALSE(result.as_trained);
  }
}

TEST_F(EvaluationWindows, DoNotDependOnRowsAndRanks) {
  const EvaluationResult one = read(options_of(1, 5, 20, 10));
  for (const int64_t rows : {4, 1000}) {
    EXPECT_NEAR(read(options_of(rows, 5, 20)).nll, one.nll, 1e-9 * one.nll) << rows;
  }
  for (const int size : {2, 3}) {
    run_in_process(size, [&](Ranks& ranks) {
      const EvaluationResult result = read_on(ranks, options_of(4, 5, 20, 10));
      EXPECT_NEAR(result.nll, one.nll, 1e-9 * one.nll);
      EXPECT_EQ(result.tokens, one.tokens);
      EXPECT_EQ(result.context_mean, one.context_mean);
      ASSERT_EQ(result.by_position.size(), one.by_position.size());
      for (size_t i = 0; i < one.by_position.size(); ++i) {
        EXPECT_EQ(result.by_position[i].tokens, one.by_position[i].tokens);
      }
    });
  }
}

// The last targets have the losses that they have where all count, and bytes and positions are theirs.
TEST_F(EvaluationWindows, TheLastTargetsCountAlone) {
  for (const Count stride : {Count(), Count(7)}) {
    const EvaluationResult all = read(options_of(3, stride, {}, 1));
    for (const int64_t last : {1, 5, 30, 1000}) {
      const EvaluationResult end = read(options_of(3, stride, last, 1));
      auto target = end.targets.begin();
      int64_t tokens = 0;
      for (const TargetLoss& of : all.targets) {
        const int64_t targets = all.documents[static_cast<size_t>(of.document)].tokens;
        if (of.position < targets - last) continue;
        ASSERT_NE(target, end.targets.end());
        EXPECT_EQ(target->document, of.document);
        EXPECT_EQ(target->position, of.position);
        EXPECT_NEAR(target->nll, of.nll, 1e-9);
        ++target;
        ++tokens;
      }
      EXPECT_EQ(target, end.targets.end());
      EXPECT_EQ(end.tokens, tokens);
      EXPECT_EQ(end.bytes, tokens - 7);  // the end of a document writes no byte
      EXPECT_TRUE(std::isnan(end.word_perplexity()));
      int64_t bytes = 0;
      for (const PositionBin& bin : end.by_position) bytes += bin.bytes;
      EXPECT_EQ(bytes, end.bytes);
    }
  }
}

TEST_F(EvaluationWindows, AreRefusedWhereTheyMakeNoSense) {
  EXPECT_ERROR(require_stride(config_with(), kWindow + 1), ErrorKind::config,
               "--stride 17: windows of 16 tokens (data.subsequence) would leave out tokens between them");
  EXPECT_NO_THROW(require_stride(config_with(), kWindow));
  EXPECT_ERROR(
      require_stride(
          config_with({"model.position.kind=rope", "model.attention={kind: landmark, landmark: {block: 4}}"}), 4),
      ErrorKind::config, "--stride 4: this model inserts tokens of its own");
}

// Windows of 4 every 3: a document of 9 targets has those from 0, 3 and 6; one of 2 has one.
TEST(StridedWindows, ByHand) {
  const std::vector<int64_t> offsets{0, 8, 9};
  BatchOptions options{.data = {.subsequence = 4, .rows = 3}, .last_row = 3, .shuffle = false, .endless = false};
  const StridedWindows windows(offsets, options, 3);
  ASSERT_EQ(windows.windows(), 4);
  Cursor cursor = windows.start();
  const auto piece = [](int64_t row, int64_t count, int64_t document, int64_t offset, int64_t context) {
    Piece made;
    made.row = row;
    made.count = count;
    made.document = document;
    made.offset = offset;
    made.context = context;
    return made;
  };
  const std::vector<Piece> first = windows.step(cursor);
  ASSERT_EQ(first.size(), 3U);
  EXPECT_EQ(first[0], piece(0, 4, 0, 0, 0));
  EXPECT_EQ(first[1], piece(1, 4, 0, 3, 1));
  EXPECT_EQ(first[2], piece(2, 3, 0, 6, 1));
  EXPECT_EQ(windows.step(cursor), std::vector<Piece>{piece(0, 2, 1, 0, 0)});
  EXPECT_TRUE(windows.done(cursor));
  // The last two targets, 7 and 8, are in the last window alone.
  options.count_last = 2;
  EXPECT_EQ(StridedWindows(offsets, options, 3).windows(), 2);
  options.count_last = 3;  // target 6 is in the window from 3
  EXPECT_EQ(StridedWindows(offsets, options, 3).windows(), 3);
}

}  // namespace
}  // namespace quire::test
