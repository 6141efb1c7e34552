// Checks what an evaluation may depend on.
#include "core/files/hdf5_file.h"
#include "data/tokenizers/byte_tokenizer.h"
#include "tests/support/expect_error.h"
#include "tests/support/inserting_stack.h"
#include "tests/support/tiny_run.h"
#include "trainers/evaluation/evaluator.h"
#include "trainers/evaluation/generator.h"
#include "trainers/evaluation/target_losses.h"
#include "trainers/setup/evaluation_config.h"

namespace quire::test {
namespace {

constexpr int64_t kSubsequence = 16;

RunConfig tiny_config(const std::vector<std::string>& overrides = {}) {
  return parse_config<RunConfig>(kTinyConfig, "tiny", overrides);
}

// A model with weights large enough to have opinions.
struct Model {
  explicit Model(const RunConfig& config)
      : machine(Machine::choose(config.run)), network(store, config.model, 258, machine.dtype) {
    store.allocate(machine.dtype, machine.device, 5);
  }
  Machine machine;
  ParameterStore store;
  Network network;
};

class Evaluation : public ::testing::Test {
 protected:
  Evaluation() {
    write_corpus(folder_ / "c.h5", {{"valid", texts_of_lengths({1, 5 * kSubsequence + 3, kSubsequence - 1, kSubsequence,
                                                                kSubsequence + 1, 40, 2})}});
    corpus_ = Corpus::open(folder_ / "c.h5");
  }
  EvaluationResult evaluate_rows(Model& model, const RunConfig& config, int64_t rows) {
    return evaluate(model.store, config, *corpus_, model.machine,
                    {.split = "valid", .rows = rows, .documents = {}, .progress = {}, .stop = {}});
  }
  TemporaryDirectory folder_;
  std::unique_ptr<Corpus> corpus_;
};

// Not by one bit: chunks and layers have sizes that are no multiple of a vector.
TEST_F(Evaluation, DoesNotDependOnRows) {
  using Settings = std::vector<std::string>;
  for (const Settings& settings :
       {Settings{"model.attention.softmax.carry.kind=hidden"}, Settings{"model.attention.softmax.carry.kind=kv"},
        Settings{"model.width=18", "model.head_size=7", "model.norm.kind=layer", "model.mlp={kind: gelu, hidden: 13}"},
        Settings{"model.position.kind=rope", "model.attention={kind: hils, hils: {chunk: 30, window: 5}}"},
        Settings{"model.position.kind=rope", "model.key_heads=1",
                 "model.attention={kind: landmark, landmark: {block: 5, top_k: 2, context_miss: {enabled: true}, "
                 "carry: {length: 20, in_training: true}}}"}}) {
    SCOPED_TRACE(settings.back());
    Settings all = settings;
    all.emplace_back("model.initialization.std=0.4");
    const RunConfig config = tiny_config(all);
    Model model(config);
    const EvaluationResult one = evaluate_rows(model, config, 1);
    EXPECT_EQ(one.tokens, one.bytes + 7);
    for (const int64_t rows : {3, 8}) {
      const EvaluationResult many = evaluate_rows(model, config, rows);
      EXPECT_EQ(many.nll, one.nll) << rows;
      EXPECT_EQ(many.context_mean, one.context_mean);
      for (size_t i = 0; i < one.documents.size(); ++i) {
        EXPECT_EQ(many.documents[i].name, one.documents[i].name);
        EXPECT_EQ(many.documents[i].nll, one.documents[i].nll) << one.documents[i].name;
      }
    }
  }
}

// When the cache is as long as the window, the cut into subsequences changes nothing.
TEST_F(Evaluation, DoesNotDependOnTheSubsequenceWhereTheWindowIsCarried) {
  const std::vector<std::string> overrides{"model.attention.softmax.window=12", "model.layers=1",
                                           "model.initialization.std=0.4"};
  const RunConfig config = tiny_config(overrides);
  Model model(config);
  const double nll = evaluate_rows(model, config, 2).nll;
  for (const char* subsequence : {"data.subsequence=5", "data.subsequence=100"}) {
    EXPECT_NEAR(evaluate_rows(model, evaluation_config(config, {subsequence}), 2).nll / nll, 1, 1e-6) << subsequence;
  }
}

TEST_F(Evaluation, LongerCachesAndOtherSubsequencesRun) {
  const RunConfig config = tiny_config({"model.initialization.std=0.4"});
  Model model(config);
  const EvaluationResult trained = evaluate_rows(model, config, 3);
  const EvaluationResult longer =
      evaluate_rows(model, evaluation_config(config, {"model.attention.softmax.carry.length=50"}), 3);
  const EvaluationResult shorter = evaluate_rows(model, evaluation_config(config, {"data.subsequence=7"}), 3);
  const EvaluationResult span =
      evaluate_rows(model, evaluation_config(config, {"model.attention.softmax.same_length=true"}), 3);
  const EvaluationResult half =
      evaluate_rows(model, evaluation_config(config, {"model.attention.softmax.carry.dtype=bf16"}), 3);
  EXPECT_LT(span.context_mean, trained.context_mean);
  EXPECT_NE(half.nll, trained.nll);
  EXPECT_NEAR(half.nll / trained.nll, 1, 1e-2);
  EXPECT_GT(longer.context_mean, trained.context_mean);
  EXPECT_LT(shorter.context_mean, trained.context_mean);
  EXPECT_NE(longer.nll, trained.nll);
  EXPECT_EQ(longer.tokens, trained.tokens);
  EXPECT_ERROR(evaluation_config(config, {"model.heads=1"}), ErrorKind::config, "model.heads: cannot differ");
}

// Evaluation may leave out what training counts: one target and one byte of each document, and their nats alone.
TEST_F(Evaluation, FirstTokensCanBeLeftOut) {
  const RunConfig config = tiny_config({"model.initialization.std=0.4"});
  Model model(config);
  const EvaluationOptions options{
      .split = "valid", .rows = 2, .documents = {}, .progress = {}, .stop = {}, .bin_width = 1};
  const EvaluationResult all = evaluate(model.store, config, *corpus_, model.machine, options);
  const RunConfig others = evaluation_config(config, {"data.score_first_token=false"});
  const EvaluationResult rest = evaluate(model.store, others, *corpus_, model.machine, options);
  EXPECT_EQ(all.tokens - rest.tokens, 7);
  EXPECT_EQ(all.bytes - rest.bytes, 7);
  EXPECT_EQ(rest.documents[0].bytes, 0);  // the text has one byte, which is left out
  EXPECT_EQ(rest.documents[0].tokens, 1);
  ASSERT_EQ(all.by_position[0].tokens, 7);
  EXPECT_EQ(rest.by_position[0].tokens, 0);
  EXPECT_EQ(rest.by_position[1].bytes, 6);
  EXPECT_NEAR(all.nll - rest.nll, all.by_position[0].nll.value(), 1e-9);
  EXPECT_NEAR(rest.bits_per_byte(), rest.nll / std::log(2.0) / static_cast<double>(all.bytes - 7), 1e-12);
  // A word that is scored in part is no word.
  EXPECT_TRUE(std::isnan(rest.word_perplexity()));
  EXPECT_FALSE(std::isnan(all.word_perplexity()));
}

// Words as quire states them are runs between white space; those of lm-evaluation-harness are the parts of
// re.split(r"\s+", text): 1, 2, 3 ("", "ab", ""), 2 ("", ""), 4 and 3.
TEST_F(Evaluation, WordsOfTheHarnessByHand) {
  const std::vector<std::string> texts{"ab", "ab\n", " ab ", " \n ", "\u3000a b\u2003", "a\t\tb c"};
  std::vector<std::string> written = texts;
  write_corpus(folder_ / "w.h5", {{"valid", written}});
  corpus_ = Corpus::open(folder_ / "w.h5");
  const RunConfig config = tiny_config({"model.initialization.std=0.4"});
  Model model(config);
  EvaluationOptions options;
  options.split = "valid";
  options.each_target = true;
  const EvaluationResult result = evaluate(model.store, config, *corpus_, model.machine, options);
  EXPECT_EQ(result.words, 1 + 1 + 1 + 0 + 2 + 3);
  ASSERT_TRUE(result.harness);
  EXPECT_EQ(result.harness->words, 1 + 2 + 3 + 2 + 4 + 3);
  double nll = 0;
  for (const TargetLoss& target : result.targets) {
    if (target.target != corpus_->tokenizer().eos_id()) nll += target.nll;
  }
  EXPECT_NEAR(result.harness->nll, nll, 1e-9 * nll);
  const nlohmann::ordered_json json = to_json(result, config, 1)["harness"];
  const auto bytes = static_cast<double>(result.bytes);
  EXPECT_NEAR(json["word_perplexity"], std::exp(nll / 15), 1e-9 * std::exp(nll / 15));
  EXPECT_NEAR(json["byte_perplexity"], std::exp(nll / bytes), 1e-9 * std::exp(nll / bytes));
  EXPECT_NEAR(json["bits_per_byte"], nll / bytes / std::log(2.0), 1e-9);
  options.last = 2;
  EXPECT_FALSE(evaluate(model.store, config, *corpus_, model.machine, options).harness);
}

// There is one layer, and documents have 1 and 2 bytes: BOS sees itself (1), the second token two (2), the third three
// (3).
TEST_F(Evaluation, ContextMeanByHand) {
  write_corpus(folder_ / "d.h5", {{"valid", {"a", "bc"}}});
  corpus_ = Corpus::open(folder_ / "d.h5");
  const RunConfig config = tiny_config({"model.layers=1"});
  Model model(config);
  EXPECT_DOUBLE_EQ(evaluate_rows(model, config, 1).context_mean, (1 + 2 + 1 + 2 + 3) / 5.0);
  // A span of one is the token itself.
  const RunConfig itself = tiny_config(
      {"model.layers=1", "model.attention.softmax.same_length=true", "model.attention.softmax.carry.length=1"});
  EXPECT_DOUBLE_EQ(evaluate_rows(model, itself, 1).context_mean, 1);
  const RunConfig cut = tiny_config({"model.layers=1", "data.subsequence=1", "model.attention.softmax.carry.length=1"});
  EXPECT_DOUBLE_EQ(evaluate_rows(model, cut, 1).context_mean, (1 + 2 + 1 + 2 + 2) / 5.0);
  // The tokens that a token sees have seen the token before them.
  const RunConfig shifted =
      tiny_config({"model.layers=1", "data.subsequence=1", "model.attention.softmax.carry.length=1",
                   "model.attention.shifted_share=0.5"});
  Model shifts(shifted);
  EXPECT_DOUBLE_EQ(evaluate_rows(shifts, shifted, 1).context_mean, (1 + 2 + 1 + 2 + 3) / 5.0);
}

constexpr const char* kVq = "model.attention={kind: vq, vq: {window: 3, block: 4, codes: 5, value_size: 6}}";

// Through the cache of codewords a target sees all of its document, whatever block and window are: 1, 2, ..., n.
TEST_F(Evaluation, ContextMeanOfCodewordsIsTheWholeDocument) {
  const RunConfig config = tiny_config({kVq});
  Model model(config);
  double sum = 0;
  int64_t targets = 0;
  for (const int64_t bytes : {1, 5 * 16 + 3, 16 - 1, 16, 16 + 1, 40, 2}) {
    for (int64_t n = 1; n <= bytes + 1; ++n) sum += static_cast<double>(n);  // its end is a target too
    targets += bytes + 1;
  }
  const EvaluationResult result = evaluate_rows(model, config, 3);
  EXPECT_EQ(result.tokens, targets);
  EXPECT_DOUBLE_EQ(result.context_mean, sum / static_cast<double>(targets));
  // Without the cache a target sees three tokens and itself.
  const RunConfig without = evaluation_config(config, {"model.attention.vq.compressive_cache=false"});
  write_corpus(folder_ / "d.h5", {{"valid", {"abcde"}}});
  corpus_ = Corpus::open(folder_ / "d.h5");
  EXPECT_DOUBLE_EQ(evaluate_rows(model, without, 1).context_mean, (1 + 2 + 3 + 4 + 4 + 4) / 6.0);
}

// Rows of packed documents have to fit blocks; a document that is read in a row of its own does not.
TEST_F(Evaluation, SubsequencesNeedNotFitTheBlocksOfTraining) {
  const RunConfig config = tiny_config({kVq, "data.pack=concat", "model.initialization.std=0.4"});
  EXPECT_ERROR(tiny_config({kVq, "data.pack=concat", "data.subsequence=7"}), ErrorKind::config,
               "data.subsequence: 7 is not a multiple of 4");
  Model model(config);
  const double nll = evaluate_rows(model, config, 3).nll;
  EXPECT_NEAR(evaluate_rows(model, evaluation_config(config, {"data.subsequence=7"}), 3).nll / nll, 1, 1e-5);
}

// A document of nine bytes has ten targets, in rows of four positions: 0..3, 4..7, 8..9.
TEST_F(Evaluation, ContextMeanOfAMemoryByHand) {
  write_corpus(folder_ / "d.h5", {{"valid", {"abcdefghi"}}});
  corpus_ = Corpus::open(folder_ / "d.h5");
  const auto context = [&](const std::string& cache, const std::string& memory) {
    const RunConfig config =
        tiny_config({"model.layers=1", "data.subsequence=4", "model.attention.softmax.carry=" + cache,
                     "model.memory=[{kind: knn, layers: [0], top_k: 1, " + memory + "}]"});
    Model model(config);
    return 10 * evaluate_rows(model, config, 1).context_mean;
  };
  const std::string none = "{kind: none}";
  // The row, and the last three tokens before it.
  EXPECT_DOUBLE_EQ(context(none, "carry: {length: 3}"), (1 + 2 + 3 + 4) + (4 + 5 + 6 + 7) + (4 + 5));
  // All tokens before the row.
  EXPECT_DOUBLE_EQ(context(none, "carry: {length: 50}"), 10.0 * 11 / 2);
  // Every other token, two of them: as far back as four tokens.
  EXPECT_DOUBLE_EQ(context(none, "carry: {length: 2}, stride: 2"), (1 + 2 + 3 + 4) + (5 + 6 + 7 + 8) + (5 + 6));
  // Memory is read once it holds five entries.
  EXPECT_DOUBLE_EQ(context(none, "carry: {length: 8}, least: 5"), (1 + 2 + 3 + 4) + (1 + 2 + 3 + 4) + (9 + 10));
  EXPECT_DOUBLE_EQ(context(none, "carry: {length: 8}, write: never"), 2 * (1 + 2 + 3 + 4) + (1 + 2));
  // The cache holds two tokens before the row, memory three that have left it.
  const std::string two = "{kind: kv, length: 2}";
  EXPECT_DOUBLE_EQ(context(two, "carry: {length: 3}, write: evict"), (1 + 2 + 3 + 4) + (5 + 6 + 7 + 8) + (6 + 7));
  EXPECT_DOUBLE_EQ(context(two, "carry: {length: 8}, write: evict, least: 3"),
                   (1 + 2 + 3 + 4) + (3 + 4 + 5 + 6) + (9 + 10));
  // Tokens that are in the cache and in memory count once.
  EXPECT_DOUBLE_EQ(context(two, "carry: {length: 3}"), (1 + 2 + 3 + 4) + (4 + 5 + 6 + 7) + (4 + 5));
}

TEST_F(Evaluation, TheResultNamesMixerAndMemory) {
  const RunConfig config = tiny_config({kVq, "model.layer_overrides=[{layers: [-1], attention: {kind: softmax}}]",
                                        "model.memory=[{kind: knn, layers: [-1], carry: {length: 3}, top_k: 2}]"});
  Model model(config);
  const nlohmann::ordered_json json = to_json(evaluate_rows(model, config, 1), config, 1);
  EXPECT_EQ(json["attention"]["kind"], "vq");
  EXPECT_EQ(json["attention"]["block"], 4);
  EXPECT_EQ(json["attention"]["compressive_cache"], true);
  EXPECT_EQ(json["memory"][0]["kind"], "knn");
  EXPECT_EQ(json["memory"][0]["top_k"], 2);
  EXPECT_EQ(json["layers"][0]["kind"], "vq");
  EXPECT_EQ(json["layers"][1]["kind"], "softmax");
}

TEST_F(Evaluation, OverridesOfLayersMaySeeFurther) {
  const std::string overrides =
      "model.layer_overrides=[{layers: [-1], attention: {softmax: {window: 20, carry: {length: 20}}}}]";
  const RunConfig config = tiny_config({overrides, "model.initialization.std=0.4"});
  Model model(config);
  const EvaluationResult trained = evaluate_rows(model, config, 3);
  for (const char* text : {"model.layer_overrides.0.attention.softmax.window=40",
                           "model.layer_overrides.0.attention.softmax.carry.length=3", "model.layer_overrides=[]"}) {
    EXPECT_NE(evaluate_rows(model, evaluation_config(config, {text}), 3).nll, trained.nll) << text;
  }
  EXPECT_ERROR(evaluation_config(config, {"model.layer_overrides=[{layers: [0], position: {kind: none}}]"}),
               ErrorKind::config, "model.layer_overrides: cannot differ");
}

class ByPosition : public Evaluation {
 protected:
  EvaluationResult by_position(Model& model, const RunConfig& config, int64_t rows, int64_t width) {
    return evaluate(model.store, config, *corpus_, model.machine,
                    {.split = "valid", .rows = rows, .documents = {}, .progress = {}, .stop = {}, .bin_width = width});
  }
};

// Bins are another way to add up the same losses: all sums are exact.
TEST_F(ByPosition, AddsUpToThePlainEvaluation) {
  const RunConfig config = tiny_config({"model.initialization.std=0.4"});
  Model model(config);
  const EvaluationResult plain = evaluate_rows(model, config, 3);
  EXPECT_TRUE(plain.by_position.empty());
  for (const int64_t width : {0, 1, 7, 1000}) {
    const EvaluationResult result = by_position(model, config, 3, width);
    EXPECT_EQ(result.nll, plain.nll);
    ExactSum total;
    int64_t tokens = 0;
    int64_t bytes = 0;
    int64_t end = 0;
    for (const PositionBin& bin : result.by_position) {
      EXPECT_EQ(bin.begin, end);
      end = bin.end;
      total.add(bin.nll);
      tokens += bin.tokens;
      bytes += bin.bytes;
    }
    EXPECT_EQ(total.value(), plain.nll) << width;
    EXPECT_EQ(tokens, plain.tokens);
    EXPECT_TRUE(result.has_bytes_by_position);
    EXPECT_EQ(bytes, plain.bytes);
    for (const DocumentResult& document : result.documents) {
      ExactSum own;
      int64_t targets = 0;
      for (const PositionBin& bin : document.by_position) {
        own.add(bin.nll);
        targets += bin.tokens;
      }
      EXPECT_EQ(own.value(), document.nll) << document.name;
      EXPECT_EQ(targets, document.tokens) << document.name;
    }
  }
}

// A document reads the same, whether others are read or not.
TEST_F(ByPosition, ChosenDocumentsReadAsAmongAll) {
  const RunConfig config = tiny_config({"model.attention.softmax.carry.kind=hidden", "model.initialization.std=0.4"});
  Model model(config);
  const auto read = [&](const std::vector<int64_t>& only) {
    EvaluationOptions options;
    options.split = "valid";
    options.rows = 2;
    options.only = only;
    options.bin_width = 10;
    options.each_target = true;
    return evaluate(model.store, config, *corpus_, model.machine, options);
  };
  const std::vector<int64_t> chosen{1, 4, 5};
  const EvaluationResult all = read({});
  const EvaluationResult some = read(chosen);
  ASSERT_EQ(some.documents.size(), chosen.size());
  int64_t tokens = 0;
  auto target = some.targets.begin();
  for (size_t place = 0; place < chosen.size(); ++place) {
    const DocumentResult& found = some.documents[place];
    const DocumentResult& expected = all.documents[static_cast<size_t>(chosen[place])];
    EXPECT_EQ(found.name, expected.name);
    EXPECT_EQ(found.tokens, expected.tokens);
    EXPECT_EQ(found.bytes, expected.bytes);
    EXPECT_NEAR(found.nll / expected.nll, 1, 1e-5) << found.name;
    tokens += found.tokens;
    int64_t binned = 0;
    for (const PositionBin& bin : found.by_position) binned += bin.tokens;
    EXPECT_EQ(binned, found.tokens);
    for (int64_t n = 0; n < found.tokens; ++n, ++target) {
      ASSERT_NE(target, some.targets.end());
      EXPECT_EQ(target->document, static_cast<int64_t>(place));
    }
  }
  EXPECT_EQ(some.tokens, tokens);
  EXPECT_EQ(target, some.targets.end());
  write_target_losses(folder_ / "some.h5", some, corpus_->tokenizer(), "runs/first");
  EXPECT_EQ(Hdf5Reader::open_file(folder_ / "some.h5").get_texts("/names").size(), chosen.size());
}

// A file of losses has every target in its place, and what the program reads back is what was found.
TEST_F(ByPosition, LossesOfSingleTargetsAreWritten) {
  const RunConfig config = tiny_config({"model.initialization.std=0.4"});
  Model model(config);
  EvaluationOptions options;
  options.split = "valid";
  options.rows = 3;
  options.each_target = true;
  const EvaluationResult result = evaluate(model.store, config, *corpus_, model.machine, options);
  ASSERT_EQ(static_cast<int64_t>(result.targets.size()), result.tokens);
  const std::filesystem::path path = folder_ / "losses.h5";
  write_target_losses(path, result, corpus_->tokenizer(), "runs/first");
  EXPECT_ERROR(require_new_losses_file(path), ErrorKind::config, "losses.h5: exists already");
  EXPECT_ERROR(require_new_losses_file(folder_ / "no" / "losses.h5"), ErrorKind::disk, "there is no folder");
  EXPECT_NO_THROW(require_new_losses_file("losses.h5"));

  const Hdf5Reader file = Hdf5Reader::open_file(path);
  EXPECT_EQ(file.attribute_text("/", "split"), "valid");
  EXPECT_EQ(file.attribute_text("/", "checkpoint"), "runs/first");
  const std::vector<int64_t> offsets = file.get("/offsets").to_vector<int64_t>();
  const std::vector<int64_t> position = file.get("/position").to_vector<int64_t>();
  const std::vector<int32_t> target = file.get("/target").to_vector<int32_t>();
  const std::vector<double> nll = file.get("/nll").to_vector<double>();
  const Split& split = corpus_->split("valid");
  ASSERT_EQ(offsets.size(), result.documents.size() + 1);
  for (size_t d = 0; d < result.documents.size(); ++d) {
    EXPECT_EQ(file.get_texts("/names")[d], result.documents[d].name);
    const auto begin = static_cast<size_t>(offsets[d]);
    const auto count = static_cast<size_t>(offsets[d + 1]) - begin;
    ASSERT_EQ(static_cast<int64_t>(count), result.documents[d].tokens);
    std::vector<int32_t> text(count - 1);
    split.tokens(static_cast<int64_t>(d), 0, static_cast<int64_t>(text.size()), text.data());
    const std::vector<uint8_t> written = file.get("/text").to_vector<uint8_t>();
    const std::vector<int64_t> text_end = file.get("/text_end").to_vector<int64_t>();
    const auto first = begin == 0 ? 0 : static_cast<std::ptrdiff_t>(text_end[begin - 1]);
    EXPECT_EQ(std::string(written.begin() + first,
                          written.begin() + static_cast<std::ptrdiff_t>(text_end[begin + count - 1])),
              corpus_->tokenizer().decode(text));
    text.push_back(corpus_->tokenizer().eos_id());
    ExactSum sum;
    for (size_t i = 0; i < count; ++i) {
      EXPECT_EQ(position[begin + i], static_cast<int64_t>(i));
      EXPECT_EQ(target[begin + i], text[i]);
      sum.add(nll[begin + i]);
    }
    EXPECT_EQ(sum.value(), result.documents[d].nll);
  }
}

// Documents of 1, 83, 15, 16, 17, 40 and 2 bytes: position n has a target in each of at least n bytes.
TEST_F(ByPosition, CountsTargetsByHand) {
  const RunConfig config = tiny_config();
  Model model(config);
  const EvaluationResult result = by_position(model, config, 2, 0);
  std::vector<int64_t> tokens;
  std::vector<int64_t> bytes;
  for (const PositionBin& bin : result.by_position) {
    tokens.push_back(bin.tokens);
    bytes.push_back(bin.bytes);
  }
  EXPECT_EQ(tokens, (std::vector<int64_t>{7, 7, 6 + 5, 20, 40, 1 + 2 + 2 * 16, 32 + 9, 20}));
  EXPECT_EQ(bytes, (std::vector<int64_t>{7, 6, 5 + 5, 20, 39, 0 + 1 + 2 * 16, 32 + 8, 19}));
}

// Single losses are those of the plain evaluation; where rows and cut change nothing there, they change nothing here.
TEST_F(ByPosition, DoesNotDependOnRowsAndTheCut) {
  const RunConfig config =
      tiny_config({"model.attention.softmax.window=12", "model.layers=1", "model.initialization.std=0.4"});
  Model model(config);
  const EvaluationResult one = by_position(model, config, 1, 0);
  for (const EvaluationResult& other : {by_position(model, config, 8, 0),
                                        by_position(model, evaluation_config(config, {"data.subsequence=5"}), 2, 0)}) {
    ASSERT_EQ(other.by_position.size(), one.by_position.size());
    for (size_t i = 0; i < one.by_position.size(); ++i) {
      EXPECT_EQ(other.by_position[i].tokens, one.by_position[i].tokens);
      EXPECT_NEAR(other.by_position[i].nll.value() / one.by_position[i].nll.value(), 1, 1e-5) << i;
    }
  }
}

// Whatever the cut, inserted tokens are read and nothing else.
TEST_F(ByPosition, CountsTheTextAndNotWhatIsInserted) {
  std::vector<std::string> settings{"model.attention.softmax.window=12", "model.layers=1",
                                    "model.initialization.std=0.4"};
  const RunConfig without = tiny_config(settings);
  Model plain(without);
  const EvaluationResult expected = by_position(plain, without, 3, 7);
  settings.emplace_back();
  for (const Insertion& insertion :
       {Insertion{.period = 1, .ids = 1}, Insertion{.period = 5, .ids = 2},
        Insertion{.period = 1, .ids = 1, .predicted = true}, Insertion{.period = 5, .ids = 2, .predicted = true}}) {
    settings.back() = inserting(insertion);
    const RunConfig config = tiny_config(settings);
    Model model(config);
    const EvaluationResult one = by_position(model, config, 1, 7);
    EXPECT_EQ(one.tokens, expected.tokens);
    EXPECT_EQ(one.bytes, expected.bytes);
    EXPECT_NE(one.nll, expected.nll);
    ASSERT_EQ(one.by_position.size(), expected.by_position.size());
    for (size_t i = 0; i < one.by_position.size(); ++i) {
      EXPECT_EQ(one.by_position[i].tokens, expected.by_position[i].tokens) << i;
      EXPECT_EQ(one.by_position[i].bytes, expected.by_position[i].bytes) << i;
    }
    for (const char* subsequence : {"data.subsequence=5", "data.subsequence=100"}) {
      const EvaluationResult other = by_position(model, evaluation_config(config, {subsequence}), 3, 7);
      EXPECT_EQ(other.context_mean, one.context_mean);
      for (size_t i = 0; i < one.documents.size(); ++i) {
        EXPECT_EQ(other.documents[i].tokens, one.documents[i].tokens);
        EXPECT_NEAR(other.documents[i].nll / one.documents[i].nll, 1, 1e-5) << i;
      }
      for (size_t i = 0; i < one.by_position.size(); ++i) {
        EXPECT_NEAR(other.by_position[i].nll.value() / one.by_position[i].nll.value(), 1, 1e-5) << i;
      }
    }
  }
}

// "abc" is read as BOS a * b c with a period of 2. One layer with a window of 2 positions before each: BOS sees itself
// (1), a both (2), b itself and a (2) beside the inserted token, c both (2) beside it.
TEST_F(Evaluation, ContextMeanCountsTheText) {
  write_corpus(folder_ / "d.h5", {{"valid", {"abc"}}});
  corpus_ = Corpus::open(folder_ / "d.h5");
  const RunConfig config = tiny_config({"model.layers=1", "model.attention.softmax.window=2",
                                        "model.attention.softmax.carry.length=2", inserting({.period = 2, .ids = 1})});
  Model model(config);
  EXPECT_DOUBLE_EQ(evaluate_rows(model, config, 1).context_mean, (1 + 2 + 2 + 2) / 4.0);
}

// Every target has the nats that the generator gives it: among the text's vocabulary, from an inserted token too.
TEST_F(Evaluation, EqualsGeneration) {
  const ByteTokenizer tokenizer;
  const std::string text = "abcabdabcabeab";  // with BOS a multiple of 3 and of 5
  write_corpus(folder_ / "d.h5", {{"valid", {text}}});
  corpus_ = Corpus::open(folder_ / "d.h5");
  for (const Insertion& insertion :
       {Insertion{}, Insertion{.period = 3, .ids = 1}, Insertion{.period = 3, .ids = 1, .predicted = true},
        Insertion{.period = 5, .ids = 2, .predicted = true}, Insertion{.period = 1, .ids = 1, .predicted = true}}) {
    const RunConfig config = tiny_config(
        {"model.attention.softmax.window=12", "model.layers=1", "model.initialization.std=0.4", inserting(insertion)});
    Model model(config);
    Generator generator(model.store, evaluation_config(config), tokenizer, model.machine);
    generator.begin_document();
    std::vector<int32_t> ids;
    tokenizer.encode(text, ids);
    ids.push_back(tokenizer.eos_id());
    double nll = 0;
    for (const int32_t id : ids) {
      double sum = 0;
      for (const float logit : generator.logits()) sum += std::exp(static_cast<double>(logit));
      nll += std::log(sum) - static_cast<double>(generator.logits()[static_cast<size_t>(id)]);
      if (id != tokenizer.eos_id()) generator.read({&id, 1});
    }
    const EvaluationResult result = evaluate_rows(model, config, 1);
    EXPECT_EQ(result.tokens, 15);
    EXPECT_NEAR(result.nll / nll, 1, 1e-5) << insertion.period << (insertion.predicted ? " predicted" : "");
  }
}

}  // namespace
}  // namespace quire::test
