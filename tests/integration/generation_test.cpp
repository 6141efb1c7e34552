// Compares the generator, which reads token by token, with the model that reads everything at once.
#include "layers/state/state_pool.h"
#include "tests/support/expect_error.h"
#include "tests/support/hand_batch.h"
#include "tests/support/inserting_stack.h"
#include "tests/support/test_mechanisms.h"
#include "tests/support/tiny_run.h"
#include "trainers/evaluation/generator.h"
#include "trainers/setup/evaluation_config.h"

namespace quire::test {
namespace {

const std::string kText = "a quire is a gathering of leaves";

struct Model {
  explicit Model(const std::vector<std::string>& overrides, const Insertion& inserted = {})
      : config(with_more(overrides, inserted)),
        machine(Machine::choose(config.run)),
        network(store, config.model, 258, machine.dtype) {
    store.allocate(machine.dtype, machine.device, 5);
  }
  static RunConfig with_more(std::vector<std::string> overrides, const Insertion& inserted) {
    if (inserted.any()) overrides.push_back(inserting(inserted));
    overrides.emplace_back("model.initialization.std=0.4");
    return parse_config<RunConfig>(kTinyConfig, "tiny", overrides);
  }
  RunConfig config;
  Machine machine;
  ParameterStore store;
  Network network;
};

// Logits after BOS and the first `count` bytes of the text, read by the network as it is, in pieces.
std::vector<float> logits_of(Model& model, Network& network, int64_t count, int64_t piece) {
  const ByteTokenizer tokenizer;
  std::vector<int32_t> text{tokenizer.bos_id()};
  tokenizer.encode(kText.substr(0, static_cast<size_t>(count)), text);
  // Adds the tokens that the model inserts.
  const Insertion& insertion = network.model.insertion();
  std::vector<int32_t> ids;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto token = static_cast<int64_t>(i);
    if (insertion.any() && token > 0 && token % insertion.period == 0) {
      const int64_t number = token / insertion.period - 1;
      ids.push_back(static_cast<int32_t>(258 + number % insertion.ids));
    }
    ids.push_back(text[i]);
  }
  const auto tokens = static_cast<int64_t>(text.size());
  if (insertion.predicts() && tokens % insertion.period == 0) {
    ids.push_back(static_cast<int32_t>(258 + (tokens / insertion.period - 1) % insertion.ids));
  }
  StatePool state(network.declared.state, 1, piece, model.machine.dtype, model.machine.device);
  std::vector<float> logits;
  for (size_t begin = 0; begin < ids.size(); begin += static_cast<size_t>(piece)) {
    const auto length = static_cast<int64_t>(std::min(ids.size() - begin, static_cast<size_t>(piece)));
    Batch batch = one_segment(1, length, {static_cast<uint8_t>(begin == 0 ? 1 : 0)});
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
      batch.tokens[i] = ids[begin + i];
      batch.position[i] = static_cast<int32_t>(begin + i);
    }
    state.begin_step(batch);
    Tape tape(false);
    const StateView view = state.view(0, 1);
    logits =
        network.model.next_logits({.tape = tape, .batch = batch, .state = view}, batch.length - 1).to_vector<float>();
    state.commit();
  }
  return logits;
}

void expect_near(const std::vector<float>& a, const std::vector<float>& b, const std::string& what) {
  ASSERT_EQ(a.size(), b.size());
  double worst = 0;
  double largest = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    worst = std::max(worst, std::abs(static_cast<double>(a[i]) - b[i]));
    largest = std::max(largest, std::abs(static_cast<double>(b[i])));
  }
  EXPECT_GT(largest, 0.1) << what;
  EXPECT_LT(worst, 1e-4 * std::max(1.0, largest)) << what;
}

std::vector<float> generator_logits(Model& model, const std::vector<std::string>& overrides, int64_t count) {
  const ByteTokenizer tokenizer;
  const RunConfig config = evaluation_config(model.config, overrides);
  const std::string prompt = kText.substr(0, static_cast<size_t>(count));
  return Generator(model.store, config, tokenizer, model.machine, prompt).logits();
}

TEST(Generation, TokenByTokenEqualsOneSegment) {
  for (const char* position : {"model.position.kind=xl", "model.position.kind=t5", "model.position.kind=rope",
                               "model.position.kind=alibi", "model.position.kind=none"}) {
    Model model({position, "model.key_heads=1", "model.attention.softmax.window=7",
                 "model.attention.softmax.carry.kind=kv", "model.attention.softmax.carry.length=7",
                 "data.subsequence=40"});
    for (const int64_t count : {0, 1, 6, 7, 8, 31}) {
      const std::vector<float> whole = logits_of(model, model.network, count, 40);
      expect_near(generator_logits(model, {"data.subsequence=1"}, count), whole, position);
      expect_near(generator_logits(model, {"data.subsequence=5"}, count), whole, position);
    }
  }
}

TEST(Generation, KeysAndValuesStandForHiddenStates) {
  for (const char* norm : {"model.norm.placement=pre", "model.norm.placement=post"}) {
    for (const char* window : {"model.attention.softmax.window=none", "model.attention.softmax.window=12"}) {
      Model model({norm, window});
      for (const int64_t piece : {1, 5, 16}) {
        for (const int64_t count : {4, 30}) {
          expect_near(generator_logits(model, {"data.subsequence=" + std::to_string(piece)}, count),
                      logits_of(model, model.network, count, piece), norm);
        }
      }
    }
  }
}

TEST(Generation, OtherPositionsHeadsAndSpans) {
  for (const std::vector<std::string>& settings : std::vector<std::vector<std::string>>{
           {"model.position.kind=rope", "model.key_heads=1", "model.attention.softmax.qk_norm=true"},
           {"model.position.kind=alibi", "model.attention.softmax.window=12"},
           {"model.key_heads=1", "model.attention.softmax.same_length=true"}}) {
    Model model(settings);
    for (const int64_t piece : {1, 5}) {
      expect_near(generator_logits(model, {"data.subsequence=" + std::to_string(piece)}, 30),
                  logits_of(model, model.network, 30, piece), settings[0]);
    }
  }
}

// Keys stored in bf16 stay so; hidden states stored in bf16 become keys of full precision, which are as near to them as
// a rounding of 2^-8.
TEST(Generation, ReadsCachesOfHalfSize) {
  Model keys({"model.attention.softmax.carry={kind: kv, length: 12, dtype: bf16}"});
  expect_near(generator_logits(keys, {"data.subsequence=5"}, 30), logits_of(keys, keys.network, 30, 5), "kv");
  Model hidden({"model.attention.softmax.carry.dtype=bf16"});
  const std::vector<float> got = generator_logits(hidden, {"data.subsequence=5"}, 30);
  const std::vector<float> expected = logits_of(hidden, hidden.network, 30, 5);
  double difference = 0;
  double norm = 0;
  for (size_t i = 0; i < got.size(); ++i) {
    difference += std::pow(got[i] - expected[i], 2);
    norm += std::pow(expected[i], 2);
  }
  EXPECT_LT(std::sqrt(difference / norm), 0.05);
  EXPECT_GT(difference, 0);
}

TEST(Generation, OtherProjectionsNormsAndAngles) {
  for (const std::vector<std::string>& settings : std::vector<std::vector<std::string>>{
           {"model.position.kind=rope", "model.attention.softmax={bias: qkv, rms_qk_norm: head, scale: 0.5}",
            "model.norm.placement=both"},
           {"model.attention.softmax={bias: all, rms_qk_norm: all}", "model.norm.placement=after"},
           {"model.position.kind=rope", "model.residual=parallel", "model.mlp={kind: geglu_erf, bias: true}",
            "model.position.rope.scaling={kind: yarn, factor: 4, original_length: 8}"}}) {
    Model model(settings);
    for (const int64_t piece : {1, 5}) {
      expect_near(generator_logits(model, {"data.subsequence=" + std::to_string(piece)}, 30),
                  logits_of(model, model.network, 30, piece), settings[0]);
    }
  }
}

// A generated text is one subsequence, whose positions end.
TEST(Generation, LearnedPositionsCountInTheDocument) {
  Model model({"model.attention.softmax.carry={kind: none, length: none}", "model.position.kind=none",
               "model.embedding.learned_positions=40", "data.subsequence=20"});
  const ByteTokenizer tokenizer;
  std::vector<int32_t> ids{tokenizer.bos_id()};
  tokenizer.encode(kText, ids);
  Generator one_by_one(model.store, model.config, tokenizer, model.machine);
  for (size_t read = 0; read < 20; ++read) {
    one_by_one.read({&ids[read], 1});
    expect_near(one_by_one.logits(), logits_of(model, model.network, static_cast<int64_t>(read), 20), "one by one");
  }
  EXPECT_ERROR(one_by_one.read({&ids[20], 1}), ErrorKind::config, "21 tokens, BOS included, are more than the 20");
  expect_near(generator_logits(model, {"data.subsequence=40"}, 31), logits_of(model, model.network, 31, 40), "longer");
  Generator prompted(model.store, model.config, tokenizer, model.machine, kText.substr(0, 9));
  EXPECT_ERROR(generate(prompted, tokenizer, {.length = 12}, {}), ErrorKind::config, "21 tokens, BOS included");
}

TEST(Generation, NeverGivesAnIdWithoutAToken) {
  Model model({"model.vocabulary=300"});
  const ByteTokenizer tokenizer;
  Generator generator(model.store, model.config, tokenizer, model.machine, "abc");
  EXPECT_EQ(generator.logits().size(), 258U);
  for (int i = 0; i < 30; ++i) EXPECT_LT(generator.next({.temperature = 9, .seed = static_cast<uint64_t>(i)}), 258);
}

// A model without a cache generates with what its subsequence would have shown it: never a longer distance.
TEST(Generation, WithoutACacheItSlides) {
  Model model(
      {"model.attention.softmax.carry.kind=none", "model.attention.softmax.carry.length=none", "data.subsequence=8"});
  Model sliding({"model.attention.softmax.carry.kind=none", "model.attention.softmax.carry.length=none",
                 "model.attention.softmax.window=7", "data.subsequence=40"});
  for (const int64_t count : {3, 7, 8, 31}) {
    expect_near(generator_logits(model, {}, count), logits_of(sliding, sliding.network, count, 40), "sliding");
  }
}

// However few tokens a call hands in, blocks and windows of the mixer stand where training has them: without a window
// the block is one.
TEST(Generation, CodewordsAreReadInTheTrainedBlocks) {
  for (const char* position : {"xl", "t5", "alibi", "none"}) {
    for (const char* options :
         {"block: 4, ", "window: 6, block: 4, ", "window: 2, block: 5, ", "compressive_cache: false, block: 4, "}) {
      Model model({std::string("model.position.kind=") + position, "data.subsequence=20",
                   std::string("model.attention={kind: vq, vq: {") + options + "codes: 5, value_size: 6}}"});
      for (const int64_t count : {0, 3, 4, 12, 13, 18, 31}) {
        const std::vector<float> trained = logits_of(model, model.network, count, 20);
        const std::string what = std::string(position) + ", " + options + std::to_string(count);
        expect_near(generator_logits(model, {}, count), trained, what);
        expect_near(generator_logits(model, {"data.subsequence=1"}, count), trained, what + " one by one");
        expect_near(generator_logits(model, {"data.subsequence=7"}, count), trained, what + " by seven");
      }
    }
  }
}

// Tokens that were generated are read like those of a prompt.
TEST(Generation, GeneratedTokensAreReadLikeAPrompt) {
  Model model({"data.subsequence=1"});
  const ByteTokenizer tokenizer;
  Generator generator(model.store, model.config, tokenizer, model.machine, "");
  std::string text;
  for (int i = 0; i < 20; ++i) {
    const int32_t id = generator.next({.length = 1, .temperature = 0});
    if (id == tokenizer.eos_id()) break;
    text += static_cast<char>(id);
  }
  EXPECT_EQ(generator.position(), static_cast<int64_t>(text.size()) + 1);
  Generator prompted(model.store, model.config, tokenizer, model.machine, text);
  std::vector<float> left = generator.logits();
  std::vector<float> right = prompted.logits();
  left[256] = right[256] = 0;  // next() rules BOS out
  EXPECT_EQ(left, right);
}

const std::vector<std::string> kWindowed{"model.position.kind=rope", "model.attention.softmax.window=7",
                                         "model.attention.softmax.carry.kind=kv",
                                         "model.attention.softmax.carry.length=7"};

// However the text arrives, inserted tokens stand where they would if it were read at once.
TEST(Generation, InsertedTokensGoOnInsideThePeriod) {
  const ByteTokenizer tokenizer;
  for (const Insertion& insertion :
       {Insertion{.period = 1, .ids = 1}, Insertion{.period = 3, .ids = 2}, Insertion{.period = 5, .ids = 1},
        Insertion{.period = 100, .ids = 1}, Insertion{.period = 1, .ids = 2, .predicted = true},
        Insertion{.period = 3, .ids = 2, .predicted = true}}) {
    Model model(kWindowed, insertion);
    std::vector<int32_t> ids{tokenizer.bos_id()};
    tokenizer.encode(kText, ids);
    for (const char* subsequence : {"data.subsequence=1", "data.subsequence=4", "data.subsequence=80"}) {
      const RunConfig config = evaluation_config(model.config, {subsequence});
      Generator one_by_one(model.store, config, tokenizer, model.machine);
      for (size_t read = 1; read < ids.size(); ++read) {
        one_by_one.read({&ids[read - 1], 1});
        const auto tokens = static_cast<int64_t>(read);
        EXPECT_EQ(one_by_one.tokens(), tokens);
        EXPECT_EQ(one_by_one.position(), insertion.positions(tokens));
        ASSERT_EQ(one_by_one.logits().size(), 258U);
        const std::vector<float> whole = logits_of(model, model.network, tokens - 1, 80);
        expect_near(one_by_one.logits(), whole, "token by token");
        if (read % 7 != 0) continue;
        // A prompt, and the rest after it.
        Generator resumed(model.store, config, tokenizer, model.machine);
        resumed.read(std::span(ids).first(read / 2));
        resumed.read(std::span(ids).subspan(read / 2, read - read / 2));
        expect_near(resumed.logits(), whole, "in two parts");
      }
    }
  }
}

// Whatever a chunk holds when the text stops: nothing, some of its tokens, all of them, the inserted one too.
TEST(Generation, ChunksGoOnFromEveryOffset) {
  register_test_mechanisms();
  const ByteTokenizer tokenizer;
  for (const char* stack :
       {"model.stack={kind: two_halves, two_halves: {chunk: 3, length: 40}}",
        "model.stack={kind: two_halves, two_halves: {chunk: 2, length: 3}}",
        "model.stack={kind: drt, drt: {chunk: 3, top_k: 2, encoder_layers: 1, carry: {length: 40}}}",
        "model.stack={kind: drt, drt: {chunk: 2, top_k: 3, encoder_layers: 1, carry: {length: 3}}}"}) {
    std::vector<std::string> settings = kWindowed;
    settings.insert(settings.end(), {stack, "model.layers=4"});
    Model model(settings);
    std::vector<int32_t> ids{tokenizer.bos_id()};
    tokenizer.encode(kText, ids);
    const RunConfig config = evaluation_config(model.config, {"data.subsequence=5"});
    Generator one_by_one(model.store, config, tokenizer, model.machine);
    for (size_t tokens = 1; tokens < ids.size(); ++tokens) {
      one_by_one.read({&ids[tokens - 1], 1});
      const std::vector<float> whole = logits_of(model, model.network, static_cast<int64_t>(tokens) - 1, 80);
      expect_near(one_by_one.logits(), whole, "token by token");
      Generator prompted(model.store, config, tokenizer, model.machine);
      prompted.read(std::span(ids).first(tokens));
      expect_near(prompted.logits(), whole, "a prompt");
    }
  }
}

TEST(Generation, NeverGivesOrReadsAnInsertedId) {
  const ByteTokenizer tokenizer;
  for (const bool predicted : {false, true}) {
    Model model(kWindowed, {.period = 2, .ids = 2, .predicted = predicted});
    Generator generator(model.store, model.config, tokenizer, model.machine, "abc");
    for (int i = 0; i < 30; ++i) {
      EXPECT_LT(generator.most_likely(), 258);
      const int32_t id = generator.next({.temperature = 5.0, .seed = static_cast<uint64_t>(i)});
      EXPECT_LT(id, 258);
    }
    for (const int32_t id : {258, 259, -1}) {
      EXPECT_ERROR(generator.read({&id, 1}), ErrorKind::data, "is outside the tokenizer's vocabulary of 258");
    }
  }
}

}  // namespace
}  // namespace quire::test
