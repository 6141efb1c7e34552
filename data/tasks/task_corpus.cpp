#include "data/tasks/task_corpus.h"

#include <algorithm>
#include <charconv>
#include <chrono>
#include <numeric>

#include "core/check.h"
#include "data/corpus/corpus_writer.h"
#include "data/tasks/filler_source.h"
#include "data/tasks/make_task.h"
#include "data/tokenizers/make_tokenizer.h"

namespace quire {

namespace {

struct SplitCount {
  std::string name;
  int64_t documents = 0;
};

std::vector<SplitCount> parse_counts(const std::vector<std::string>& options) {
  constexpr int64_t kMaxSize = int64_t{1} << 32;
  std::vector<SplitCount> counts;
  for (const std::string& option : options) {
    const size_t equals = option.find('=');
    SplitCount count{option.substr(0, equals)};
    const std::string_view number = equals == std::string::npos ? "" : std::string_view(option).substr(equals + 1);
    const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), count.documents);
    if (count.name.empty() || error != std::errc() || end != number.data() + number.size() || count.documents < 1 ||
        count.documents > kMaxSize) {
      fail(ErrorKind::config, "--split {}: with --task it is NAME=COUNT, a number of documents", option);
    }
    const auto same_name = [&](const SplitCount& other) { return other.name == count.name; };
    if (std::any_of(counts.begin(), counts.end(), same_name)) {
      fail(ErrorKind::config, "--split {}: split {} is given twice", option, count.name);
    }
    counts.push_back(count);
  }
  if (counts.empty()) fail(ErrorKind::config, "prepare: --task needs --split NAME=COUNT, as in --split train=100");
  return counts;
}

// Appends a document in pieces, because it may be longer than memory.
void append(CorpusWriter& writer, const TaskDocument& document) {
  constexpr int64_t kPiece = int64_t{1} << 16;
  std::vector<int32_t> ids;
  std::vector<uint8_t> marks;
  for (int64_t begin = 0; begin < document.length(); begin += kPiece) {
    ids.resize(static_cast<size_t>(std::min(kPiece, document.length() - begin)));
    document.tokens(begin, static_cast<int64_t>(ids.size()), ids.data());
    writer.append_tokens(ids);
  }
  for (int64_t begin = 0; begin < document.length() + 1; begin += kPiece) {
    marks.resize(static_cast<size_t>(std::min(kPiece, document.length() + 1 - begin)));
    document.marks(begin, static_cast<int64_t>(marks.size()), marks.data());
    writer.append_marks(marks);
  }
  if (const std::optional<double> chance = document.chance()) writer.set_chance(*chance);
}

}  // namespace

PrepareReport prepare_task_corpus(const TaskCorpusOptions& options,
                                  const std::function<void(int64_t done, int64_t total)>& progress) {
  const auto begin = std::chrono::steady_clock::now();
  const std::vector<SplitCount> counts = parse_counts(options.splits);
  FillerSource source(options.filler, Ranks::current());
  std::error_code ignored;
  if (std::filesystem::equivalent(source.path(), options.output, ignored)) {
    fail(ErrorKind::config, "{}: the output is the corpus that --filler reads; choose another --output",
         options.output.string());
  }
  const std::unique_ptr<Tokenizer> tokenizer =
      source.tokenizer() != nullptr
          ? make_tokenizer(source.tokenizer()->serialise(), options.filler, ErrorKind::data)
          : parse_tokenizer_option(options.tokenizer, {.allow_lossy = options.lossy_tokenizer});
  const std::unique_ptr<Filler> filler = source.make(*tokenizer);
  // The task has a separate number, so that a run with the same seed that makes such documents on the fly does not
  // train on these.
  const std::unique_ptr<Task> task =
      make_task(options.task, {*tokenizer, *filler, options.seed, hash_scope("prepare")}, "prepare");
  CorpusWriter writer(options.output, *tokenizer, {.any_bytes = false, .force = options.force});

  const int64_t documents = std::accumulate(counts.begin(), counts.end(), int64_t{0},
                                            [](int64_t sum, const SplitCount& count) { return sum + count.documents; });
  int64_t index = 0;
  for (const SplitCount& count : counts) {
    writer.begin_split(count.name);
    for (int64_t i = 0; i < count.documents; ++i, ++index) {
      writer.begin_document(count.name, fmt::format("{}-{}", *options.task.task, index), "--task");
      append(writer, *task->document(index));
      writer.end_document();
      if (progress) progress(index + 1, documents);
    }
  }
  PrepareReport report = report_of(writer.finish(), *tokenizer);
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace quire
