#include "trainers/evaluation/evaluator.h"

#include <chrono>
#include <cmath>
#include <numbers>

#include "core/check.h"
#include "data/batches/batch_source.h"
#include "layers/model_mechanisms.h"
#include "layers/state/state_pool.h"

namespace quire {

namespace {

// Runs of rows that hold something: near the end of a split most rows are empty and need no arithmetic.
std::vector<std::pair<int64_t, int64_t>> active_runs(const Batch& batch) {
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (int64_t row = 0; row < batch.rows; ++row) {
    if (batch.segment[static_cast<size_t>(batch.at(row, 0))] < 0) continue;
    if (!runs.empty() && runs.back().second == row) {
      ++runs.back().second;
    } else {
      runs.emplace_back(row, row + 1);
    }
  }
  return runs;
}

std::vector<int64_t> recalled_cells(const Batch& batch) {
  std::vector<int64_t> cells;
  for (size_t i = 0; i < batch.recalled.size(); ++i) {
    if (batch.recalled[i] != 0) cells.push_back(static_cast<int64_t>(i));
  }
  return cells;
}

// Targets of a document that count, from its `first` one on.
int64_t counted_targets(const Split& split, int64_t document, int64_t first) {
  const int64_t targets = split.length(document) + 1;
  if (!split.marked()) return targets - first;
  constexpr int64_t kPiece = int64_t{1} << 16;
  std::vector<uint8_t> marks;
  int64_t counted = 0;
  for (int64_t begin = first; begin < targets; begin += kPiece) {
    marks.resize(static_cast<size_t>(std::min(kPiece, targets - begin)));
    split.marks(document, begin, static_cast<int64_t>(marks.size()), marks.data());
    for (const uint8_t mark : marks) counted += (mark & kCounted) != 0 ? 1 : 0;
  }
  return counted;
}

// Bytes of the first token as the tokenizer writes it.
int64_t first_bytes(const Split& split, const Tokenizer& tokenizer, int64_t document) {
  if (split.length(document) == 0) return 0;
  int32_t id = 0;
  split.tokens(document, 0, 1, &id);
  const auto bytes = static_cast<int64_t>(tokenizer.decode({&id, 1}).size());
  return std::min(bytes, split.bytes(document));  // a tokenizer may write other text than it read
}

// {"kind", and the options that may be another at evaluation}, without those that mean nothing beside the others.
nlohmann::ordered_json kind_to_json(const KindConfig& config) {
  nlohmann::ordered_json json{{"kind", config.kind}};
  config.options.visit([&](const ConfigStruct& options) {
    const ConfigNode written = write_config(options);
    for (const ConfigSetting& setting : list_settings(options)) {
      if (!setting.at_evaluation || written.at(setting.key) == nullptr) continue;
      // Numbers and truth values are written as such, none as null, everything else as text.
      const auto value =
          nlohmann::ordered_json::parse(setting.value == "none" ? "null" : setting.value, nullptr, false);
      json[setting.key] = value.is_discarded() ? nlohmann::ordered_json(setting.value) : value;
    }
  });
  return json;
}

std::vector<double> as_doubles(const Tensor& tensor) {
  if (tensor.dtype() == DType::f64) return tensor.to_vector<double>();
  const std::vector<float> values = tensor.to_vector<float>();
  return {values.begin(), values.end()};
}

}  // namespace

double EvaluationResult::token_perplexity() const {
  return std::exp(nll / static_cast<double>(tokens));
}
double EvaluationResult::word_perplexity() const {
  if (!has_words) return std::nan("");
  return std::exp(nll / static_cast<double>(words));
}
double EvaluationResult::bits_per_byte() const {
  if (!has_text) return std::nan("");
  return nll / (std::numbers::ln2 * static_cast<double>(bytes));
}

EvaluationResult evaluate(ParameterStore& store, const RunConfig& config, Corpus& corpus, const Machine& machine,
                          const EvaluationOptions& options) {
  const auto started = std::chrono::steady_clock::now();
  const Split& split = corpus.split(options.split);
  const int64_t documents = std::min(options.documents.value_or(split.documents()), split.documents());
  const int64_t rows = std::min(options.rows, documents);
  const int64_t length = config.data.subsequence;

  const ModelReading reading = reading_of(config.model, length, Purpose::evaluate);
  Network network(store, reading.model, corpus.tokenizer().vocabulary_size(), machine.dtype);
  const Insertion& insertion = network.model.insertion();
  StatePool state(network.declared.state, rows, length, machine.dtype, machine.device, machine.scratch);
  // Documents begin their own row: the cut into subsequences, and so the result, does not depend on the others.
  BatchSource source(corpus, options.split,
                     {.subsequence = length,
                      .rows = rows,
                      .first_row = 0,
                      .last_row = rows,
                      .pack = Pack::pad,
                      .insertion = insertion,
                      .score_first_token = config.data.score_first_token,
                      .shuffle = false,
                      .endless = false,
                      .documents = documents});
  EvaluationResult result;
  result.as_trained = reading.as_trained;
  result.split = options.split;
  int64_t expected = 0;
  for (int64_t document = 0; document < documents; ++document) {
    const int64_t left_out = config.data.score_first_token ? 0 : 1;
    const int64_t targets = counted_targets(split, document, left_out);
    result.has_text = result.has_text && targets == split.length(document) + 1 - left_out;
    const int64_t bytes =
        split.bytes(document) - (left_out == 0 ? 0 : first_bytes(split, corpus.tokenizer(), document));
    result.documents.push_back({split.name(document), targets, split.words(document), bytes, 0.0, {}});
    expected += targets;
  }
  result.has_words = result.has_text && config.data.score_first_token;
  std::vector<ExactSum> sums(static_cast<size_t>(documents));
  std::vector<ExactSum> recall_sums(split.marked() ? static_cast<size_t>(documents) : 0);
  std::optional<PositionBins> bins;
  if (options.bin_width) {
    int64_t longest = 0;
    for (int64_t document = 0; document < documents; ++document) {
      longest = std::max(longest, split.length(document) + 1);
    }
    bins.emplace(longest, *options.bin_width);
    result.has_bytes_by_position = corpus.tokenizer().kind() == "byte" && result.has_text;
  }
  const int32_t eos = corpus.tokenizer().eos_id();
  const ModelReach reach(reading.model);
  double context = 0;
  int64_t done = 0;
  while (const auto item = source.next()) {
    const Batch& batch = item->batch;
    state.begin_step(batch);
    for (const auto& [begin, end] : active_runs(batch)) {
      const Batch part = batch.row_block(begin, end);
      Tape tape(false);
      const StateView view = state.view(begin, end);
      const std::vector<int64_t> recalled = recalled_cells(part);
      const TargetScores scores = network.model.score({.tape = tape, .batch = part, .state = view}, recalled);
      const std::vector<double> nll = as_doubles(scores.nll);
      for (size_t k = 0; k < recalled.size(); ++k) {
        const auto cell = static_cast<size_t>(recalled[k]);
        const auto document = static_cast<size_t>(part.document[cell]);
        recall_sums[document].add(nll[cell]);
        RecallResult& recall = result.documents[document].recall;
        ++recall.tokens;
        recall.correct += scores.best[k] == part.targets[cell] ? 1 : 0;
      }
      for (size_t i = 0; i < nll.size(); ++i) {
        if (part.loss_mask[i] == 0) continue;
        sums[static_cast<size_t>(part.document[i])].add(nll[i]);
        // Positions of the document count tokens that the model inserts; what is reported does not.
        const int64_t position = part.position[i];
        // An inserted token that has a target has that of the token before it.
        const int64_t token = insertion.tokens_before(position) - (insertion.is_inserted(position) ? 1 : 0);
        if (bins) bins->add(token, nll[i], result.has_bytes_by_position && part.targets[i] != eos ? 1 : 0);
        // A target sees its own position too.
        const int64_t seen = reach({position, static_cast<int64_t>(i) % length});
        context +=
            static_cast<double>(insertion.tokens_before(position + 1) - insertion.tokens_before(position - seen));
      }
    }
    state.commit();
    done += batch.target_count;
    if (options.progress) options.progress(done, expected);
    if (options.stop && options.stop()) {
      result.complete = false;
      break;
    }
  }
  ExactSum total;
  ExactSum recalled_total;
  if (split.marked()) result.recall.emplace();
  for (size_t i = 0; i < sums.size(); ++i) {
    DocumentResult& document = result.documents[i];
    document.nll = sums[i].value();
    result.tokens += document.tokens;
    result.words += document.words;
    result.bytes += document.bytes;
    total.add(sums[i]);
    if (!result.recall) continue;
    document.recall.nll = recall_sums[i].value();
    result.recall->tokens += document.recall.tokens;
    result.recall->correct += document.recall.correct;
    recalled_total.add(recall_sums[i]);
  }
  if (result.recall) result.recall->nll = recalled_total.value();
  result.nll = total.value();
  if (bins) result.by_position = bins->bins();
  QUIRE_CHECK(!result.complete || done == result.tokens, "evaluate: {} targets were read of {}", done, result.tokens);
  if (!std::isfinite(result.nll)) {
    fail(ErrorKind::numerics, "evaluate: the loss on split {} is not finite; the weights of this checkpoint overflow",
         options.split);
  }
  result.context_mean = context / static_cast<double>(std::max<int64_t>(done, 1));
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  return result;
}

nlohmann::ordered_json to_json(const EvaluationResult& result, const RunConfig& config, int64_t rows) {
  const AttentionConfig& attention = config.model.attention;
  nlohmann::ordered_json json{
      {"split", result.split},
      {"documents", result.documents.size()},
      {"tokens", result.tokens},
      {"words", result.words},
      {"bytes", result.bytes},
      {"nll", result.nll},
      {"token_perplexity", result.token_perplexity()},
      {"word_perplexity", result.word_perplexity()},
      {"bits_per_byte", result.bits_per_byte()},
      {"window", attention.reach() ? nlohmann::ordered_json(*attention.reach()) : nlohmann::ordered_json()},
      {"cache", {{"kind", name_in_config(attention.cache.kind)}, {"length", attention.cache_length()}}},
      {"attention", kind_to_json(attention.mechanism)},
      {"memory", nlohmann::ordered_json::array()},
      {"stack", kind_to_json(config.model.stack.mechanism)},
      {"subsequence", config.data.subsequence},
      {"score_first_token", config.data.score_first_token},
      {"rows", std::min<int64_t>(rows, static_cast<int64_t>(result.documents.size()))},
      {"context_mean", result.context_mean},
      {"as_trained", result.as_trained},
      {"seconds", result.seconds},
  };
  if (result.recall) json["recall"] = recall_to_json(*result.recall);
  for (const MemoryConfig& memory : config.model.memory) {
    nlohmann::ordered_json entry = kind_to_json(memory.mechanism);
    entry["layers"] = memory.layers;
    json["memory"].push_back(std::move(entry));
  }
  if (!config.model.layer_overrides.empty()) {
    for (const LayerConfig& layer : config.model.layer_configs()) {
      json["layers"].push_back(kind_to_json(layer.attention.mechanism));
    }
  }
  return json;
}

nlohmann::ordered_json recall_to_json(const RecallResult& recall) {
  const auto tokens = static_cast<double>(recall.tokens);
  const bool any = recall.tokens > 0;
  return {{"tokens", recall.tokens},
          {"nll", recall.nll},
          {"perplexity", any ? nlohmann::ordered_json(std::exp(recall.nll / tokens)) : nlohmann::ordered_json()},
          {"accuracy",
           any ? nlohmann::ordered_json(static_cast<double>(recall.correct) / tokens) : nlohmann::ordered_json()}};
}

nlohmann::ordered_json positions_to_json(const EvaluationResult& result) {
  nlohmann::ordered_json list = nlohmann::ordered_json::array();
  for (const PositionBin& bin : result.by_position) {
    const double nll = bin.nll.value();
    list.push_back(
        {{"begin", bin.begin},
         {"end", bin.end},
         {"tokens", bin.tokens},
         {"nll", nll},
         {"nats_per_token",
          bin.tokens > 0 ? nlohmann::ordered_json(nll / static_cast<double>(bin.tokens)) : nlohmann::ordered_json()},
         {"bytes", result.has_bytes_by_position ? nlohmann::ordered_json(bin.bytes) : nlohmann::ordered_json()},
         {"bits_per_byte", result.has_bytes_by_position && bin.bytes > 0
                               ? nlohmann::ordered_json(nll / (std::numbers::ln2 * static_cast<double>(bin.bytes)))
                               : nlohmann::ordered_json()}});
  }
  return list;
}

}  // namespace quire
