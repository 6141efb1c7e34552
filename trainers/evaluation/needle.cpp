#include "trainers/evaluation/needle.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "data/tasks/make_task.h"

namespace quire {

namespace {

constexpr int64_t kLongest = int64_t{1} << 30;
constexpr int64_t kPiece = int64_t{1} << 14;  // tokens of a document in memory

// Reads the answer token by token as if the predictor had generated it. As long as all earlier tokens are right,
// generation would give the same: at the first wrong one, `differs` is called with the tokens before it.
void read_answer(Predictor& predictor, const AskedDocument& document, NeedleCell& cell,
                 const std::function<void(std::span<const int32_t>)>& differs) {
  const std::vector<int32_t>& answer = document.answer();
  bool exact = true;
  for (size_t i = 0; i < answer.size(); ++i) {
    const bool right = predictor.most_likely() == answer[i];
    if (exact && !right) differs(std::span(answer).first(i));
    exact = exact && right;
    if (static_cast<int64_t>(i) == document.scored() && right) ++cell.one_token;
    if (right) ++cell.right_tokens;
    if (i + 1 < answer.size()) predictor.read(std::span(answer).subspan(i, 1));
  }
  if (exact) ++cell.exact;
  cell.answer_tokens += static_cast<int64_t>(answer.size());
}

// Goes on with a reply, greedily, until its score is settled, the text ends or the tokens for it are used up.
double score_of_reply(Predictor& predictor, const AskedDocument& document, const Tokenizer& tokenizer,
                      std::span<const int32_t> begun) {
  std::vector<int32_t> reply(begun.begin(), begun.end());
  std::string text = tokenizer.decode(reply);
  while (static_cast<int64_t>(reply.size()) < document.reserve() && !document.is_settled(text)) {
    const int32_t id = predictor.most_likely();
    if (id == tokenizer.eos_id()) break;
    reply.push_back(id);
    text = tokenizer.decode(reply);
    predictor.read({&id, 1});
  }
  return document.score(text);
}

void read_document(Predictor& predictor, const AskedDocument& document, const Tokenizer& tokenizer, NeedleCell& cell,
                   int64_t sample, const std::function<void(int64_t)>& advance) {
  predictor.begin_document();
  std::vector<int32_t> ids;
  for (int64_t begin = 0; begin < document.answer_begin(); begin += kPiece) {
    ids.resize(static_cast<size_t>(std::min(kPiece, document.answer_begin() - begin)));
    document.tokens(begin, static_cast<int64_t>(ids.size()), ids.data());
    predictor.read(ids);
    advance(static_cast<int64_t>(ids.size()));
  }
  if (document.reserve() == 0) return read_answer(predictor, document, cell, [](auto) {});
  double& score = cell.scores[static_cast<size_t>(sample)];
  const std::vector<int32_t>& answer = document.answer();
  score = document.score(tokenizer.decode(answer));
  read_answer(predictor, document, cell, [&](std::span<const int32_t> begun) {
    predictor.keep();
    score = score_of_reply(predictor, document, tokenizer, begun);
    predictor.go_back();
  });
}

std::vector<NeedleCell> cells_of(const NeedleOptions& options) {
  std::vector<std::optional<double>> depths(options.depths.begin(), options.depths.end());
  if (depths.empty()) depths.emplace_back();
  const bool scored = options.task.kind() == TaskKind::question;
  std::vector<NeedleCell> cells;
  for (const int64_t length : options.lengths) {
    for (const std::optional<double>& depth : depths) {
      cells.push_back({.length = length, .depth = depth, .samples = options.samples});
      if (scored) cells.back().scores.resize(static_cast<size_t>(options.samples));
    }
  }
  return cells;
}

// Returns the beginning of messages about a length: it names the requested one where that was rounded down.
std::string describe_length(const NeedleOptions& options, int64_t length) {
  for (size_t i = 0; i < options.requested_lengths.size(); ++i) {
    const int64_t requested = options.requested_lengths[i];
    if (options.lengths[i] != length || requested == length) continue;
    return fmt::format("needle: {} rounded down to a multiple of {}", requested, options.task.align);
  }
  return "needle";
}

// Returns the task of each cell.
std::vector<std::unique_ptr<AskingTask>> made_tasks(const NeedleOptions& options, const Tokenizer& tokenizer,
                                                    const Filler& filler) {
  std::vector<std::unique_ptr<AskingTask>> tasks;
  for (const NeedleCell& cell : cells_of(options)) {
    TaskConfig config = options.task;
    config.length = cell.length;
    config.shortest.reset();
    config.depth = cell.depth;
    if (cell.length % config.align != 0) {
      fail(ErrorKind::config, "needle: length {} is not a multiple of the alignment {}", cell.length, config.align);
    }
    const TaskSources sources{tokenizer, filler, options.seed, hash_scope("needle")};
    tasks.push_back(make_asking_task(config, sources, describe_length(options, cell.length)));
  }
  return tasks;
}

// Adds up the counts of all ranks.
void add_up(std::vector<NeedleCell>& cells, Ranks& ranks) {
  std::vector<double> counts;
  for (const NeedleCell& cell : cells) {
    for (const int64_t count : {cell.exact, cell.one_token, cell.answer_tokens, cell.right_tokens}) {
      counts.push_back(static_cast<double>(count));
    }
    counts.insert(counts.end(), cell.scores.begin(), cell.scores.end());  // 0 where another rank read the document
  }
  ranks.sum(counts);
  auto next = counts.begin();
  for (NeedleCell& cell : cells) {
    for (int64_t* count : {&cell.exact, &cell.one_token, &cell.answer_tokens, &cell.right_tokens}) {
      *count = static_cast<int64_t>(*next++);
    }
    for (double& score : cell.scores) score = *next++;
  }
}

}  // namespace

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::vector<int64_t> parse_lengths(const std::string& text, const std::string& where) {
  std::vector<int64_t> lengths;
  for (const std::string& part : split_at_commas(text)) {
    int64_t length = 0;
    const char* end = part.data() + part.size();
    const auto [rest, error] = std::from_chars(part.data(), end, length);
    const std::string_view unit(rest, static_cast<size_t>(end - rest));
    const int64_t factor = unit.empty()                 ? 1
                           : unit == "k" || unit == "K" ? 1024
                           : unit == "M" || unit == "m" ? 1 << 20
                                                        : 0;
    if (error != std::errc() || factor == 0 || length < 1 || length > kLongest / factor) {
      fail(ErrorKind::config, "{} {}: \"{}\" is no length; use numbers such as 1000, 4k or 1M, up to 1024M", where,
           text, part);
    }
    lengths.push_back(length * factor);
    if (std::count(lengths.begin(), lengths.end(), lengths.back()) > 1) {
      fail(ErrorKind::config, "{} {}: {} is given twice", where, text, part);
    }
  }
  return lengths;
}

std::vector<double> parse_depths(const std::string& text, const std::string& where) {
  std::vector<double> depths;
  for (const std::string& part : split_at_commas(text)) {
    double depth = -1;
    const auto [rest, error] = std::from_chars(part.data(), part.data() + part.size(), depth);
    if (error != std::errc() || rest != part.data() + part.size() || !(depth >= 0 && depth <= 1)) {
      fail(ErrorKind::config, "{} {}: \"{}\" is no depth; use numbers from 0 to 1", where, text, part);
    }
    depths.push_back(depth);
    if (std::count(depths.begin(), depths.end(), depth) > 1) {
      fail(ErrorKind::config, "{} {}: {} is given twice", where, text, part);
    }
  }
  return depths;
}

std::string format_length(int64_t length) {
  if (length % (1 << 20) == 0) return fmt::format("{}M", length >> 20);
  if (length % 1024 == 0) return fmt::format("{}k", length >> 10);
  return fmt::format("{}", length);
}

void require_lengths(const NeedleOptions& options, const Tokenizer& tokenizer, const Filler& filler) {
  made_tasks(options, tokenizer, filler);
}

NeedleResult find_needles(Predictor& predictor, const Tokenizer& tokenizer, const Filler& filler,
                          const NeedleOptions& options, const std::function<void(int64_t, int64_t)>& progress,
                          Ranks& ranks) {
  const auto started = std::chrono::steady_clock::now();
  const std::vector<std::unique_ptr<AskingTask>> tasks = made_tasks(options, tokenizer, filler);
  NeedleResult result;
  result.cells = cells_of(options);
  int64_t total = 0;
  for (const NeedleCell& cell : result.cells) total += cell.length * cell.samples;
  const Ranks::Operation operation(ranks, "reading documents with needles");
  // Ranks exchange progress after each piece, so none waits longer than for a piece. Ranks without a document left
  // continue to do so until all are done. Returns whether any rank still reads.
  const auto advance = [&](int64_t count, bool reading) {
    std::array<double, 2> said{static_cast<double>(count), reading ? 1.0 : 0.0};
    ranks.sum(said);
    result.tokens += static_cast<int64_t>(said[0]);
    if (progress && said[0] > 0) progress(result.tokens, total);
    return said[1] > 0;
  };
  int64_t document = 0;
  for (size_t i = 0; i < tasks.size(); ++i) {
    for (int64_t sample = 0; sample < options.samples; ++sample) {
      if (document++ % ranks.size() != ranks.rank()) continue;
      read_document(predictor, *tasks[i]->ask(sample), tokenizer, result.cells[i], sample,
                    [&](int64_t count) { advance(count, true); });
    }
  }
  while (advance(0, false)) {
  }
  add_up(result.cells, ranks);
  result.seconds = ranks.largest(std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
  return result;
}

double NeedleCell::score() const {
  return std::accumulate(scores.begin(), scores.end(), 0.0) / static_cast<double>(scores.size());
}

ShareInterval interval_of(double mean, int64_t samples) {
  constexpr double kZ = 1.959963984540054;  // 97.5 % of the normal distribution lie below
  const auto n = static_cast<double>(samples);
  const double middle = (mean + kZ * kZ / (2 * n)) / (1 + kZ * kZ / n);
  const double half = kZ / (1 + kZ * kZ / n) * std::sqrt(mean * (1 - mean) / n + kZ * kZ / (4 * n * n));
  return {std::max(0.0, middle - half), std::min(1.0, middle + half)};
}

nlohmann::ordered_json cells_to_json(const NeedleResult& result, const std::string& task) {
  const auto add = [](nlohmann::ordered_json& json, const std::string& name, double share, int64_t samples) {
    const ShareInterval interval = interval_of(share, samples);
    json[name] = share;
    json[name + "_interval"] = {interval.low, interval.high};
  };
  nlohmann::ordered_json cells = nlohmann::ordered_json::array();
  for (const NeedleCell& cell : result.cells) {
    nlohmann::ordered_json json;
    if (!cell.scores.empty()) json["task"] = task;
    json["length"] = cell.length;
    if (cell.scores.empty()) {
      json["depth"] = cell.depth ? nlohmann::ordered_json(*cell.depth) : nlohmann::ordered_json();
    }
    json["samples"] = cell.samples;
    if (!cell.scores.empty()) add(json, "score", cell.score(), cell.samples);
    add(json, "exact_match", cell.exact_share(), cell.samples);
    if (cell.scores.empty()) {
      add(json, "one_token", cell.one_token_share(), cell.samples);
    } else {
      json["token_accuracy"] = cell.right_share();
      json["scores"] = cell.scores;
    }
    cells.push_back(std::move(json));
  }
  return cells;
}

}  // namespace quire
