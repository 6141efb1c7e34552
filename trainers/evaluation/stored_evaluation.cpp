#include "trainers/evaluation/stored_evaluation.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/files/output_file.h"
#include "core/json.h"

namespace quire {

namespace {

using OrderedJson = nlohmann::ordered_json;

constexpr int kStoredVersion = 1;
constexpr std::string_view kStoredKind = "quire evaluation";
constexpr std::string_view kStoredMark = "{\"kind\":\"quire evaluation\",";

OrderedJson stored_document_json(const StoredDocument& document, bool has_bytes) {
  OrderedJson json{{"name", document.name},
                   {"tokens", document.tokens},
                   {"bytes", document.bytes},
                   {"words", document.words},
                   {"nll", document.nll}};
  OrderedJson tokens = OrderedJson::array();
  OrderedJson bytes = OrderedJson::array();
  OrderedJson nats = OrderedJson::array();
  for (const StoredBin& bin : document.by_position) {
    tokens.push_back(bin.tokens);
    bytes.push_back(bin.bytes);
    nats.push_back(bin.nll);
  }
  json["tokens_by_position"] = tokens;
  if (has_bytes) json["bytes_by_position"] = bytes;
  json["nll_by_position"] = nats;
  if (document.recalled_tokens) {
    json["recalled_tokens"] = *document.recalled_tokens;
    json["recalled_right"] = document.recalled_right;
  }
  return json;
}

double finite_number(const OrderedJson& value) {
  const double number = value.is_number() ? value.get<double>() : std::nan("");
  if (!std::isfinite(number)) throw OrderedJson::out_of_range::create(401, "number expected", nullptr);
  return number;
}

// Bins [0, 1), [1, 2), [2, 4), ... as of PositionBins.
StoredBin bin_at(size_t index) {
  StoredBin bin;
  bin.begin = index == 0 ? 0 : int64_t{1} << (index - 1);
  bin.end = int64_t{1} << index;
  return bin;
}

StoredDocument parse_stored_document(const OrderedJson& json, bool has_bytes) {
  StoredDocument document;
  document.name = json.at("name").get<std::string>();
  document.tokens = json_integer(json.at("tokens"));
  document.bytes = json_integer(json.at("bytes"));
  document.words = json_integer(json.at("words"));
  document.nll = finite_number(json.at("nll"));
  const OrderedJson& tokens = json.at("tokens_by_position");
  const OrderedJson& nats = json.at("nll_by_position");
  constexpr size_t kMaxStoredBins = 62;
  if (tokens.size() != nats.size() || tokens.size() > kMaxStoredBins) {
    throw OrderedJson::out_of_range::create(401, "bins differ", nullptr);
  }
  for (size_t i = 0; i < tokens.size(); ++i) {
    StoredBin bin = bin_at(i);
    bin.tokens = json_integer(tokens.at(i));
    bin.nll = finite_number(nats.at(i));
    if (has_bytes) bin.bytes = json_integer(json.at("bytes_by_position").at(i));
    document.by_position.push_back(bin);
  }
  if (json.contains("recalled_tokens")) {
    document.recalled_tokens = json_integer(json.at("recalled_tokens"));
    document.recalled_right = json_integer(json.at("recalled_right"));
  }
  return document;
}

}  // namespace

StoredEvaluation parse_stored_evaluation(const OrderedJson& json) {
  if (json.at("kind") != kStoredKind || json.at("version") != kStoredVersion) {
    throw OrderedJson::out_of_range::create(401, "unknown kind or version", nullptr);
  }
  StoredEvaluation evaluation;
  evaluation.trained.step = json_integer(json.at("step"));
  if (!json.at("tokens_read").is_null()) evaluation.trained.tokens = json_integer(json.at("tokens_read"));
  if (!json.at("train_seconds").is_null()) evaluation.trained.seconds = finite_number(json.at("train_seconds"));
  if (evaluation.trained.seconds.value_or(0) < 0) throw OrderedJson::out_of_range::create(401, "seconds", nullptr);
  evaluation.corpus = json.at("corpus").get<std::string>();
  evaluation.tokenizer = json.at("tokenizer").get<std::string>();
  evaluation.split = json.at("split").get<std::string>();
  evaluation.weights = json.at("weights").get<std::string>();
  evaluation.as_trained = json.at("as_trained").get<bool>();
  evaluation.has_text = json.at("has_text").get<bool>();
  evaluation.has_words = json.at("has_words").get<bool>();
  evaluation.has_bytes_by_position = json.at("has_bytes_by_position").get<bool>();
  evaluation.settings = json.at("settings");
  for (const OrderedJson& document : json.at("documents")) {
    evaluation.documents.push_back(parse_stored_document(document, evaluation.has_bytes_by_position));
  }
  const bool counts = evaluation.tokens() > 0 && (!evaluation.has_text || evaluation.bytes() > 0);
  if (!counts) throw OrderedJson::out_of_range::create(401, "no targets", nullptr);
  return evaluation;
}

int64_t StoredEvaluation::tokens() const {
  int64_t sum = 0;
  for (const StoredDocument& document : documents) sum += document.tokens;
  return sum;
}

int64_t StoredEvaluation::bytes() const {
  int64_t sum = 0;
  for (const StoredDocument& document : documents) sum += document.bytes;
  return sum;
}

double StoredEvaluation::nll() const {
  ExactSum sum;
  for (const StoredDocument& document : documents) sum.add(document.nll);
  return sum.value();
}

double StoredEvaluation::loss() const {
  return nll() / static_cast<double>(tokens());
}

std::optional<double> StoredEvaluation::bits_per_byte() const {
  if (!has_text) return std::nullopt;
  return nll() / (std::numbers::ln2 * static_cast<double>(bytes()));
}

bool StoredEvaluation::reads_what(const StoredEvaluation& other) const {
  return corpus == other.corpus &&
         std::equal(documents.begin(), documents.end(), other.documents.begin(), other.documents.end(),
                    [](const StoredDocument& a, const StoredDocument& b) {
                      return a.name == b.name && a.tokens == b.tokens && a.bytes == b.bytes;
                    });
}

std::string identity_of(const Tokenizer& tokenizer) {
  const std::string text = tokenizer.serialise();
  return tokenizer.kind() + ":" + checksum_of(std::as_bytes(std::span(text)));
}

StoredEvaluation stored_evaluation(const EvaluationResult& result, const RunConfig& config, const Corpus& corpus,
                                   const std::string& weights, const TrainedSoFar& trained) {
  StoredEvaluation stored;
  stored.trained = trained;
  stored.corpus = corpus.hash();
  stored.tokenizer = identity_of(corpus.tokenizer());
  stored.split = result.split;
  stored.weights = weights;
  stored.as_trained = result.as_trained;
  stored.has_text = result.has_text;
  stored.has_words = result.has_words;
  stored.has_bytes_by_position = result.has_bytes_by_position;
  const OrderedJson json = to_json(result, config, config.evaluate.rows);
  for (const char* key : {"attention", "memory", "stack", "layers", "subsequence", "score_first_token"}) {
    if (json.contains(key)) stored.settings[key] = json.at(key);
  }
  for (const DocumentResult& document : result.documents) {
    StoredDocument& copy = stored.documents.emplace_back(
        StoredDocument{document.name, document.tokens, document.bytes, document.words, document.nll, {}, {}, 0});
    for (const PositionBin& bin : document.by_position) {
      const StoredBin place = bin_at(copy.by_position.size());
      QUIRE_CHECK(bin.begin == place.begin && bin.end == place.end, "stored evaluation: bin {} to {}", bin.begin,
                  bin.end);
      copy.by_position.push_back({bin.begin, bin.end, bin.tokens, bin.bytes, bin.nll.value()});
    }
    if (!result.recall) continue;
    copy.recalled_tokens = document.recall.tokens;
    copy.recalled_right = document.recall.correct;
  }
  return stored;
}

std::string to_text(const StoredEvaluation& evaluation) {
  const auto seconds = evaluation.trained.seconds;
  const auto tokens = evaluation.trained.tokens;
  OrderedJson json{{"kind", kStoredKind},
                   {"version", kStoredVersion},
                   {"step", evaluation.trained.step},
                   {"tokens_read", tokens ? OrderedJson(*tokens) : OrderedJson()},
                   {"train_seconds", seconds ? OrderedJson(*seconds) : OrderedJson()},
                   {"corpus", evaluation.corpus},
                   {"tokenizer", evaluation.tokenizer},
                   {"split", evaluation.split},
                   {"weights", evaluation.weights},
                   {"as_trained", evaluation.as_trained},
                   {"has_text", evaluation.has_text},
                   {"has_words", evaluation.has_words},
                   {"has_bytes_by_position", evaluation.has_bytes_by_position},
                   {"settings", evaluation.settings},
                   {"documents", OrderedJson::array()}};
  for (const StoredDocument& document : evaluation.documents) {
    json["documents"].push_back(stored_document_json(document, evaluation.has_bytes_by_position));
  }
  return json.dump(-1, ' ', false, OrderedJson::error_handler_t::replace) + "\n";
}

StoredEvaluation read_stored_evaluation(const std::filesystem::path& path) {
  const std::string text = read_text_file(path, {.kind = ErrorKind::data, .max_bytes = int64_t{1} << 30});
  const auto json = parse_json<OrderedJson>(text);
  const auto refuse = [&](const char* why) {
    fail(ErrorKind::data, "{}: {}; remove it, and quire eval stores a new one", path.string(), why);
  };
  if (!json.is_object() && text.starts_with(kStoredMark)) refuse("is a damaged evaluation");
  if (!json.is_object() || !json.contains("kind") || json.at("kind") != kStoredKind) {
    refuse("is no evaluation that quire stored");
  }
  try {
    if (json.at("version") != kStoredVersion) refuse("was stored by another version of quire");
    return parse_stored_evaluation(json);
  } catch (const nlohmann::json::exception&) {
    refuse("is a damaged evaluation");
  }
  return {};
}

bool is_stored_evaluation(const std::filesystem::path& path) {
  return first_bytes(path, kStoredMark.size()) == kStoredMark;
}

}  // namespace quire
