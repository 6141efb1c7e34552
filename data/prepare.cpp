#include "data/prepare.h"

#include <chrono>

#include "data/corpus_writer.h"
#include "data/split_rules.h"

namespace quire {

PrepareReport prepare_corpus(const PrepareOptions& options,
                             const std::function<void(const PrepareProgress&)>& progress) {
  const auto begin = std::chrono::steady_clock::now();
  const std::unique_ptr<Tokenizer> tokenizer = parse_tokenizer_option(options.tokenizer);
  CorpusWriter writer(options.output, *tokenizer, {.any_bytes = options.any_bytes, .force = options.force});
  const SplitDocuments documents = assign_documents(options.inputs, parse_split_options(options.splits));

  PrepareProgress done;
  for (const auto& [split, files] : documents.splits) {
    done.total_documents += static_cast<int64_t>(files.size());
    for (const DocumentFile& file : files) done.total_bytes += file.bytes;
  }
  for (const auto& [split, files] : documents.splits) {
    writer.begin_split(split);
    for (const DocumentFile& file : files) {
      writer.begin_document(split, file.name, file.path.string());
      DocumentReader reader(file);
      for (std::string_view chunk = reader.next(); !chunk.empty(); chunk = reader.next()) {
        writer.append(chunk);
        done.bytes += static_cast<int64_t>(chunk.size());
        if (progress) progress(done);
      }
      writer.end_document();
      ++done.documents;
    }
  }
  if (progress) progress(done);

  const CorpusManifest manifest = writer.finish();
  PrepareReport report;
  for (const auto& [split, totals] : manifest.splits) {
    const auto empty = documents.empty.find(split);
    report.splits[split] = {totals, writer.dropped(split) + (empty == documents.empty.end() ? 0 : empty->second)};
  }
  report.ignored = documents.ignored;
  report.tokenizer = manifest.tokenizer;
  report.vocabulary = manifest.vocabulary;
  report.checksum = manifest.checksum;
  report.file_bytes = manifest.size;
  report.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
  return report;
}

}  // namespace quire
