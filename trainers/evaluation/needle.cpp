#include "trainers/evaluation/needle.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <chrono>

#include "core/check.h"
#include "data/tasks/needle_task.h"

namespace quire {

namespace {

constexpr int64_t kLongest = int64_t{1} << 30;
constexpr int64_t kPiece = int64_t{1} << 14;  // tokens of a document in memory

std::vector<std::string> split_at_commas(const std::string& text) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(',', begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Reads a document up to its answer, then the answer token by token as if the predictor had generated it. As long as
// all earlier tokens are right, generation would give the same.
void read_document(Predictor& predictor, const NeedleDocument& document, NeedleCell& cell,
                   const std::function<void(int64_t)>& advance) {
  predictor.begin_document();
  std::vector<int32_t> ids;
  for (int64_t begin = 0; begin < document.answer_begin(); begin += kPiece) {
    ids.resize(static_cast<size_t>(std::min(kPiece, document.answer_begin() - begin)));
    document.tokens(begin, static_cast<int64_t>(ids.size()), ids.data());
    predictor.read(ids);
    advance(static_cast<int64_t>(ids.size()));
  }
  const std::vector<int32_t>& answer = document.answer();
  bool exact = true;
  for (size_t i = 0; i < answer.size(); ++i) {
    const bool right = predictor.most_likely() == answer[i];
    exact = exact && right;
    if (static_cast<int64_t>(i) == document.scored() && right) ++cell.one_token;
    if (i + 1 < answer.size()) predictor.read(std::span(answer).subspan(i, 1));
  }
  if (exact) ++cell.exact;
}

// Adds up the counts of all ranks.
void add_up(std::vector<NeedleCell>& cells, Ranks& ranks) {
  std::vector<double> counts;
  for (const NeedleCell& cell : cells) {
    counts.push_back(static_cast<double>(cell.exact));
    counts.push_back(static_cast<double>(cell.one_token));
  }
  ranks.sum(counts);
  for (size_t i = 0; i < cells.size(); ++i) {
    cells[i].exact = static_cast<int64_t>(counts[2 * i]);
    cells[i].one_token = static_cast<int64_t>(counts[2 * i + 1]);
  }
}

}  // namespace

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

NeedleResult find_needles(Predictor& predictor, const Tokenizer& tokenizer, const Filler& filler,
                          const NeedleOptions& options, const std::function<void(int64_t, int64_t)>& progress,
                          Ranks& ranks) {
  const auto started = std::chrono::steady_clock::now();
  std::vector<std::optional<double>> depths(options.depths.begin(), options.depths.end());
  if (depths.empty()) depths.emplace_back();
  NeedleResult result;
  std::vector<std::unique_ptr<NeedleTask>> tasks;
  int64_t total = 0;
  for (const int64_t length : options.lengths) {
    for (const std::optional<double>& depth : depths) {
      TaskConfig config = options.task;
      config.length = length;
      config.shortest.reset();
      config.depth = depth;
      if (length % config.align != 0) {
        fail(ErrorKind::config, "needle: length {} is not a multiple of the alignment {}", length, config.align);
      }
      const TaskSources sources{tokenizer, filler, options.seed, hash_scope("needle")};
      tasks.push_back(std::make_unique<NeedleTask>(config, sources, "needle"));
      result.cells.push_back({.length = length, .depth = depth, .samples = options.samples});
      total += length * options.samples;
    }
  }
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
      read_document(predictor, *tasks[i]->needle(sample), result.cells[i],
                    [&](int64_t count) { advance(count, true); });
    }
  }
  while (advance(0, false)) {
  }
  add_up(result.cells, ranks);
  result.seconds = ranks.largest(std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
  return result;
}

nlohmann::ordered_json cells_to_json(const NeedleResult& result) {
  nlohmann::ordered_json cells = nlohmann::ordered_json::array();
  for (const NeedleCell& cell : result.cells) {
    const auto samples = static_cast<double>(cell.samples);
    cells.push_back({{"length", cell.length},
                     {"depth", cell.depth ? nlohmann::ordered_json(*cell.depth) : nlohmann::ordered_json()},
                     {"samples", cell.samples},
                     {"exact_match", static_cast<double>(cell.exact) / samples},
                     {"one_token", static_cast<double>(cell.one_token) / samples}});
  }
  return cells;
}

}  // namespace quire
