#include "data/corpus/prepare.h"

#include <chrono>

#include "data/corpus/corpus_writer.h"
#include "data/corpus/split_rules.h"
#include "data/sources/open_documents.h"
#include "data/tokenizers/make_tokenizer.h"

namespace quire {

PrepareReport report_of(const CorpusManifest& manifest, const Tokenizer& tokenizer) {
  PrepareReport report;
  for (const auto& [split, totals] : manifest.splits) report.splits[split].totals = totals;
  report.lossy = tokenizer.lossy();
  report.tokenizer = manifest.tokenizer;
  report.vocabulary = manifest.vocabulary;
  report.checksum = manifest.checksum;
  report.file_bytes = manifest.size;
  report.left_out = manifest.left_out;
  return report;
}

namespace {

// Reports the share that each split received: documents are not cut, so with few documents, or documents of different
// lengths, it differs from the requested share.
void describe_shares(PrepareReport& report, const SplitRules& rules) {
  if (rules.shares.empty()) return;
  std::vector<std::string> names{"train"};
  for (const auto& [name, path] : rules.lists) names.push_back(name);
  for (const SplitShare& share : rules.shares) names.push_back(share.name);
  SplitTotals inputs;
  for (const std::string& name : names) {
    inputs.documents += report.splits[name].totals.documents;
    inputs.bytes += report.splits[name].totals.bytes;
  }
  for (const SplitShare& share : rules.shares) {
    PrepareReport::SplitReport& split = report.splits[share.name];
    split.asked = share.share;
    split.share = static_cast<double>(split.totals.bytes) / static_cast<double>(inputs.bytes);
    split.of_documents = inputs.documents;
  }
}

// Returns the lists of a split as the command line gives them.
std::string option_of(const std::string& split, const SplitRules& rules) {
  std::string text = "--split " + split + "=";
  const size_t begin = text.size();
  for (const auto& [name, path] : rules.lists) {
    if (name == split) text += (text.size() == begin ? "@" : ", @") + path.string();
  }
  return text;
}

}  // namespace

PrepareReport prepare_corpus(const PrepareOptions& options,
                             const std::function<void(const PrepareProgress&)>& progress) {
  const auto begin = std::chrono::steady_clock::now();
  const std::unique_ptr<Tokenizer> tokenizer =
      parse_tokenizer_option(options.tokenizer, {.allow_lossy = options.lossy_tokenizer});
  const SplitRules rules = parse_split_options(options.splits);
  CorpusWriter writer(
      options.output, *tokenizer,
      {.any_bytes = options.any_bytes, .force = options.force, .allow_duplicates = options.allow_duplicates});
  const SplitFiles files = find_split_files(options.inputs, rules);
  const auto lists = read_lists(rules);

  std::map<std::string, int64_t> left_out;
  RecordKeys keys = options.keys;
  if (options.skip_bad_records) keys.left_out = &left_out;

  PrepareProgress done;
  for (const auto& [split, list] : files.splits) {
    for (const DocumentFile& file : list) done.total_bytes += file.bytes;
  }
  for (const auto& [split, list] : files.splits) {
    writer.begin_split(split);
    for (const DocumentFile& file : list) {
      const std::unique_ptr<DocumentReader> reader = open_documents(file, keys);
      const int64_t before = done.bytes;
      while (reader->next_document()) {
        writer.begin_document(split, reader->name(), reader->where());
        for (std::string_view piece = reader->next(); !piece.empty(); piece = reader->next()) {
          writer.append(piece);
          done.bytes = before + reader->consumed();
          if (progress) progress(done);
        }
        writer.end_document();
        ++done.documents;
      }
    }
  }
  const int64_t inputs = writer.documents("train");
  for (const auto& [split, names] : lists) writer.move_documents("train", split, names, option_of(split, rules));
  take_shares(writer, rules, inputs);
  if (progress) progress(done);

  const CorpusManifest manifest = writer.finish(left_out);
  PrepareReport report = report_of(manifest, *tokenizer);
  for (auto& [split, part] : report.splits) part.dropped = writer.dropped(split);
  describe_shares(report, rules);
  report.ignored = files.ignored;
  report.hidden = files.hidden;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace quire
