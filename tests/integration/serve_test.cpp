// The service of quire serve inside this process, with models of several mechanisms: its answers are those of quire
// generate and quire eval, whatever shares the batch, and a session is the text that it was made of.
#include "core/files/checksum.h"
#include "tests/support/served_model.h"
#include "trainers/evaluation/evaluator.h"
#include "trainers/evaluation/generator.h"
#include "trainers/serve/generated_text.h"

namespace quire::test {
namespace {

struct ServeCase {
  std::string name;
  std::vector<std::string> settings;
  double rounding = 0;  // how much neighbours may change a log probability
};
void PrintTo(const ServeCase& value, std::ostream* out) {
  *out << value.name;
}

class ServedModel : public ::testing::TestWithParam<ServeCase> {
 protected:
  Trained trained_{GetParam().settings};
};

const std::string kBook = "a quire is a gathering of leaves, and a book is a gathering of quires; ";
const std::string kQuestion = "what is a quire?";

// Greedy, and by two seeds, as quire generate --samples does.
TEST_P(ServedModel, GeneratesAsGenerateDoes) {
  Served served(trained_);
  for (const double temperature : {0.0, 1.0}) {
    const SamplingOptions options{.length = 30, .temperature = temperature, .top_k = 40, .top_p = 0.9, .seed = 5};
    const Json choices = served.complete({{"prompt", kBook},
                                          {"max_tokens", options.length},
                                          {"temperature", temperature},
                                          {"top_k", options.top_k},
                                          {"top_p", options.top_p},
                                          {"seed", options.seed},
                                          {"n", 2}});
    for (uint64_t number = 0; number < 2; ++number) {
      SamplingOptions own = options;
      own.seed += number;
      LoadedModel& model = *trained_.model;
      Generator generator(model.store(), model.config(), model.tokenizer(), model.machine(), kBook);
      const std::string text = generate(generator, model.tokenizer(), own, {});
      EXPECT_EQ(choices.at(number).at("text"), Json::parse(json_text(text)));
    }
  }
}

// The end of the text is a target of quire eval.
TEST_P(ServedModel, ScoresAsEvalDoes) {
  Served served(trained_);
  LoadedModel& model = *trained_.model;
  const EvaluationResult own = evaluate(model.store(), model.config(), *trained_.corpus, model.machine(),
                                        {.split = "valid", .documents = std::nullopt, .progress = {}, .stop = {}});
  Json prompts = Json::array();
  for (const std::string& text : texts_of_lengths({60, 5, 33})) prompts.push_back("<|bos|>" + text + "<|eos|>");
  const Json choices =
      served.complete({{"prompt", prompts}, {"max_tokens", 1}, {"logprobs", 1}, {"echo", true}, {"temperature", 0}});
  for (size_t i = 0; i < prompts.size(); ++i) {
    const Json& logprobs = choices.at(i).at("logprobs");
    const size_t count = own.documents[i].tokens;
    ASSERT_EQ(logprobs.at("tokens").size(), count + 2);
    EXPECT_EQ(logprobs.at("tokens").at(0), "<|bos|>");
    EXPECT_TRUE(logprobs.at("token_logprobs").at(0).is_null());
    double nll = 0;
    for (size_t t = 1; t <= count; ++t) {
      const double value = logprobs.at("token_logprobs").at(t).get<double>();
      nll -= value;
      const Json& top = logprobs.at("top_logprobs").at(t);
      ASSERT_EQ(top.size(), 1U);
      EXPECT_LE(value, top.begin()->get<double>());
      const bool likely = top.contains(logprobs.at("tokens").at(t).get<std::string>());
      EXPECT_EQ(top.begin()->get<double>() == value, likely);
    }
    EXPECT_NEAR(nll, own.documents[i].nll, 1e-6 * own.documents[i].nll);
  }
}

// Not in the last bit, in any row, where the number of rows chooses no other kernel.
TEST_P(ServedModel, NeighboursDoNotMatter) {
  Served served(trained_, {}, 5);
  Json prompts = Json::array();
  for (const size_t length : {1U, 70U, 16U, 17U, 33U, 2U, 48U}) prompts.push_back(kBook.substr(0, length));
  Json fields{{"prompt", prompts}, {"max_tokens", 9}, {"logprobs", 2}, {"echo", true}, {"temperature", 0}};
  const Json together = served.complete(fields);
  for (size_t i = 0; i < prompts.size(); ++i) {
    fields["prompt"] = prompts.at(i);
    const Json alone = served.complete(fields).at(0);
    EXPECT_EQ(together.at(i).at("text"), alone.at("text"));
    const Json& values = together.at(i).at("logprobs").at("token_logprobs");
    const Json& expected = alone.at("logprobs").at("token_logprobs");
    ASSERT_EQ(values.size(), expected.size());
    for (size_t t = 0; t < values.size(); ++t) {
      EXPECT_NEAR(values.at(t).get<double>(), expected.at(t).get<double>(), GetParam().rounding) << i << " " << t;
    }
  }
}

// Bit for bit: the session ends at a cut, and what follows the cut is read again.
TEST_P(ServedModel, ASessionIsItsText) {
  Served served(trained_, {.folder = trained_.folder / "sessions"});
  const Json made = served.ask("/v1/sessions", {{"session", "book"}, {"prompt", kBook}});
  EXPECT_EQ(made.at("tokens"), kBook.size() + 1);
  const Json whole{{"prompt", kBook + kQuestion}, {"max_tokens", 12}, {"logprobs", 1}, {"temperature", 0}};
  const Json expected = served.complete(whole);
  const Json question{
      {"session", "book"}, {"prompt", kQuestion}, {"max_tokens", 12}, {"logprobs", 1}, {"temperature", 0}};
  EXPECT_EQ(served.complete(question), expected);
  EXPECT_EQ(served.complete(question), expected);
  Json scored = question;
  scored["echo"] = true;
  const Json echoed = served.complete(scored).at(0).at("logprobs");
  EXPECT_EQ(echoed.at("tokens").size(), kQuestion.size() + 12);
  EXPECT_FALSE(echoed.at("token_logprobs").at(0).is_null());
  // In two parts, and from disk.
  served.ask("/v1/sessions", {{"session", "parts"}, {"prompt", kBook.substr(0, 20)}});
  served.ask("/v1/sessions", {{"session", "parts"}, {"prompt", kBook.substr(20)}, {"append", true}});
  Json of_parts = question;
  of_parts["session"] = "parts";
  EXPECT_EQ(served.complete(of_parts), expected);
  served.ask("/v1/sessions/save", {{"session", "book"}});
  Served other(trained_, {.folder = trained_.folder / "sessions"});
  EXPECT_EQ(other.complete(question), expected);
  other.ask("/v1/completions", of_parts, 404);
}

std::vector<ServeCase> cases() {
  return {
      {"xl", {}},
      {"window", {"model.position.kind=rope", "model.attention={softmax: {window: 9, carry: {kind: kv, length: 9}}}"}},
      {"vq",
       {"model.attention={kind: vq, vq: {window: 6, block: 4, codes: 5, value_size: 6}}", "model.heads=1",
        "model.mlp={kind: none}"},
       1e-6},
      {"knn", {"model.memory=[{kind: knn, layers: [-1], carry: {length: 24}, top_k: 4}]"}},
      {"landmark",
       {"model.position.kind=rope",
        "model.attention={kind: landmark, landmark: {block: 5, top_k: 2, carry: {length: 20, in_training: true}}}"}},
      {"moba",
       {"model.position.kind=rope",
        "model.attention={kind: moba, moba: {block: 4, top_k: 3, carry: {length: 30, dtype: int8}}}"}},
      {"hils",
       {"model.position.kind=rope",
        "model.attention={kind: hils, hils: {chunk: 4, window: 6, top_k: 2, carry: {length: 30}}}"}},
      {"block_recurrent",
       {"model.position.kind=t5", "model.attention={kind: block_recurrent, block_recurrent: {window: 6, states: 4}}"}},
      {"feedback",
       {"model.position.kind=alibi",
        "model.attention={kind: block_recurrent, block_recurrent: {window: 4, states: 4, feedback: 0}}"}},
      {"infini", {"model.position.kind=rope", "model.attention={kind: infini, infini: {block: 6, update: delta}}"}},
      {"delta", {"model.position.kind=none", "model.attention={kind: delta, delta: {gates: channel}}"}},
      {"drt",
       {"model.position.kind=alibi", "model.attention={softmax: {window: 9, carry: {kind: kv, length: none}}}",
        "model.layers=3",
        "model.stack={kind: drt, drt: {chunk: 3, top_k: 2, lower_layers: 1, encoder_layers: 1, carry: {length: 40}}}"}},
  };
}
INSTANTIATE_TEST_SUITE_P(Mechanisms, ServedModel, ::testing::ValuesIn(cases()),
                         [](const auto& test) { return test.param.name; });

TEST(Serve, StreamsTheTextThatItWouldSend) {
  Trained trained({});
  Served served(trained);
  Json fields{{"prompt", "abc"}, {"max_tokens", 40}, {"seed", 3},          {"temperature", 2},
              {"echo", true},    {"logprobs", 1},    {"stop", {"zq", "e"}}};
  const Json whole = served.complete(fields).at(0);
  EXPECT_EQ(whole.at("text").get<std::string>().find('e'), std::string::npos);
  fields["stream"] = true;
  fields["stream_options"] = {{"include_usage", true}};
  std::istringstream events(served.begin("/v1/completions", fields)->wait().body);
  std::string text;
  Json tokens = Json::array();
  Json offsets = Json::array();
  std::string last;
  bool used = false;
  for (std::string line; std::getline(events, line);) {
    if (line.empty()) continue;
    last = line.substr(6);
    if (last == "[DONE]") break;
    const Json piece = Json::parse(last);
    used = used || piece.contains("usage");
    for (const Json& choice : piece.at("choices")) {
      text += choice.at("text").get<std::string>();
      for (const Json& token : choice.at("logprobs").at("tokens")) tokens.push_back(token);
      for (const Json& offset : choice.at("logprobs").at("text_offset")) offsets.push_back(offset);
    }
  }
  EXPECT_EQ(last, "[DONE]");
  EXPECT_TRUE(used);
  EXPECT_EQ(text, whole.at("text"));
  EXPECT_EQ(tokens, whole.at("logprobs").at("tokens"));
  EXPECT_EQ(offsets, whole.at("logprobs").at("text_offset"));
}

TEST(Serve, SessionsAreBoundedAndTheLongestUnusedLeave) {
  Trained trained({});
  int64_t bytes = 0;
  {
    Served served(trained);
    bytes = served.ask("/v1/sessions", {{"session", "a"}, {"prompt", kBook}}).at("bytes").get<int64_t>();
  }
  Served served(trained, {.bytes = 2 * bytes + 100, .folder = {}});
  for (const char* name : {"a", "b"}) served.ask("/v1/sessions", {{"session", name}, {"prompt", kBook}});
  const auto question = [](const char* name) { return Json{{"session", name}, {"prompt", "x"}, {"max_tokens", 1}}; };
  served.complete(question("a"));
  served.ask("/v1/sessions", {{"session", "c"}, {"prompt", kBook}});
  served.complete(question("a"));
  served.complete(question("c"));
  served.ask("/v1/completions", question("b"), 404);
  served.ask("/v1/sessions/save", {{"session", "a"}}, 400);
  served.ask("/v1/sessions/delete", {{"session", "a"}});
  served.ask("/v1/completions", question("a"), 404);
  Served small(trained, {.bytes = bytes - 1, .folder = {}});
  small.ask("/v1/sessions", {{"session", "a"}, {"prompt", kBook}}, 507);
}

TEST(Serve, ASessionTakesWhatItsTextTakes) {
  Trained trained({"model.position.kind=rope", "model.attention={softmax: {carry: {kind: kv, length: 4096}}}"});
  Served served(trained);
  const auto bytes = [&](const std::string& name, const std::string& text) {
    return served.ask("/v1/sessions", {{"session", name}, {"prompt", text}}).at("bytes").get<int64_t>();
  };
  const int64_t none = bytes("none", "x");
  const int64_t one = bytes("one", kBook) - none;
  EXPECT_GT(one, 0);
  EXPECT_NEAR(static_cast<double>(bytes("two", kBook + kBook) - none), 2.0 * one, 0.35 * one);
}

TEST(Serve, DamagedOrForeignSessionsAreRefused) {
  Trained trained({});
  const std::filesystem::path folder = trained.folder / "sessions";
  const Json question{{"session", "a"}, {"prompt", "x"}, {"max_tokens", 1}};
  {
    Served served(trained, {.folder = folder});
    served.ask("/v1/sessions", {{"session", "a"}, {"prompt", kBook}});
    served.ask("/v1/sessions/save", {{"session", "a"}});
  }
  const std::string whole = read_text(folder / "a.session");
  for (const size_t at : {size_t{0}, size_t{40}, whole.size() / 2, whole.size() - 1}) {
    std::string damaged = whole;
    damaged[at] = static_cast<char>(damaged[at] ^ 1);
    write_text(folder / "a.session", damaged);
    Served served(trained, {.folder = folder});
    const Json error = served.ask("/v1/completions", question, 500).at("error");
    EXPECT_NE(error.at("message").get<std::string>().find("damaged"), std::string::npos) << error;
  }
  // Not damaged on the disk, but not written by this program either.
  for (const auto& [from, to, message] :
       std::vector<std::array<std::string, 3>>{{"quire session 2", "quire session 1", "another version"},
                                               {".length\",3,", ".length\",3,-", "entries of"},
                                               {".length\",3,", ".length\",3,9", "entries of"}}) {
    std::string other = whole.substr(0, whole.size() - 16);
    const size_t at = other.find(from);
    ASSERT_NE(at, std::string::npos) << from << " in " << other.substr(0, 400);
    other.replace(at, from.size(), to);
    write_text(folder / "a.session", other + checksum_of(std::as_bytes(std::span(other))));
    Served served(trained, {.folder = folder});
    const Json error = served.ask("/v1/completions", question, 500).at("error");
    EXPECT_NE(error.at("message").get<std::string>().find(message), std::string::npos) << error;
  }
  write_text(folder / "a.session", whole);
  Trained other({"model.width=12", "run.seed=4"});
  Served served(other, {.folder = folder});
  const Json error = served.ask("/v1/completions", question, 500).at("error");
  EXPECT_NE(error.at("message").get<std::string>().find("another model"), std::string::npos) << error;
}

TEST(Serve, ASessionThatWasSavedIsSavedAgainWhenItGrows) {
  Trained trained({});
  const SessionLimits limits{.folder = trained.folder / "sessions"};
  const Json question{{"session", "a"}, {"prompt", "x"}, {"max_tokens", 8}, {"temperature", 0}};
  Json grown;
  {
    Served served(trained, limits);
    served.ask("/v1/sessions", {{"session", "a"}, {"prompt", kBook}});
    served.ask("/v1/sessions/save", {{"session", "a"}});
    served.ask("/v1/sessions", {{"session", "a"}, {"prompt", kQuestion}, {"append", true}});
    grown = served.complete(question);
  }
  Served other(trained, limits);
  const std::vector<SessionStore::Listed> listed = other.service().sessions().list();
  ASSERT_EQ(listed.size(), 1U);
  EXPECT_TRUE(listed[0].name == "a" && listed[0].saved && !listed[0].tokens);
  EXPECT_EQ(other.complete(question), grown);
}

TEST(Serve, OneRequestWritesASessionAtATime) {
  Trained trained({});
  Served served(trained, {});
  const auto claim = served.service().sessions().claim("a");
  served.ask("/v1/sessions", {{"session", "a"}, {"prompt", kBook}}, 409);
  served.ask("/v1/sessions/delete", {{"session", "a"}}, 409);
  claim->release();
  served.ask("/v1/sessions", {{"session", "a"}, {"prompt", kBook}});
  served.ask("/v1/sessions", {{"session", "a"}, {"prompt", "x"}, {"append", true}});
}

TEST(Serve, AModelWithPositionsRefusesLongTexts) {
  Trained trained({"model.position.kind=none", "model.embedding.learned_positions=16",
                   "model.attention={softmax: {carry: {kind: none}}}"});
  Served served(trained);
  served.complete({{"prompt", "0123456789"}, {"max_tokens", 6}});
  const Json error = served.ask("/v1/completions", {{"prompt", "0123456789"}, {"max_tokens", 7}}, 400).at("error");
  EXPECT_NE(error.at("message").get<std::string>().find("16 positions"), std::string::npos) << error;
  served.ask("/v1/sessions", {{"session", "a"}, {"prompt", "0123456789"}});
  served.complete({{"session", "a"}, {"prompt", "01"}, {"max_tokens", 4}});
  served.ask("/v1/completions", {{"session", "a"}, {"prompt", "01"}, {"max_tokens", 5}}, 400);
  served.ask("/v1/completions", {{"session", "a"}, {"prompt", "012345"}, {"max_tokens", 0}}, 400);
}

TEST(Serve, TextsOfTokens) {
  const ByteTokenizer tokenizer;
  const TokenTexts texts(tokenizer);
  EXPECT_EQ(texts.encode("<|bos|>a<|eos|><|bos|", false),
            (std::vector<int32_t>{256, 97, 257, 60, 124, 98, 111, 115, 124}));
  EXPECT_EQ(json_token("a\"b"), "\"a\\\"b\"");
  EXPECT_EQ(json_token("\xE2\x80"), "\"bytes:\\\\xe2\\\\x80\"");
  // As many as in JSON, in which what is no character is U+FFFD, and a token begins at the character that it is in.
  for (const std::string text : {"a\xC3\xA9z", "\x9B\x9B", "\xE2\x80", "\xE2\x80z", "\xED\xA0\x80z", "\xE0\x80z",
                                 "\xF4\x90\x80\x80z", "\xC3\xC3\xA9"}) {
    CharacterCount count;
    for (const char c : text) count.add(std::string(1, c));
    CharacterCount as_written;
    as_written.add(Json::parse(json_text(text)).get<std::string>());
    EXPECT_EQ(count.whole() + (text.ends_with('\x80') ? 1 : 0), as_written.whole()) << json_token(text);
  }
}

TEST(Serve, AContinuationEndsBeforeAStop) {
  GeneratedText text({"end", "nd of"});
  EXPECT_FALSE(text.add("the e"));
  EXPECT_EQ(text.settled(), 4U);
  EXPECT_FALSE(text.add("\xC3"));
  EXPECT_EQ(text.settled(), 5U);
  EXPECT_FALSE(text.add("\xA9 en"));
  EXPECT_EQ(text.settled(), 8U);
  EXPECT_TRUE(text.add("d of it"));
  EXPECT_EQ(text.text(), "the e\xC3\xA9 ");
}

}  // namespace
}  // namespace quire::test
