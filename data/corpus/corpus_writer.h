// Writes a corpus: one HDF5 file and its manifest. Memory use does not grow with the documents' length.
//
//   /                       attributes format, version, words (the rule that words were counted by)
//   /tokenizer              text of Tokenizer::serialise()
//   /splits/NAME/tokens     u8, u16 or i32, all documents one after the other, contiguous in the file
//   /splits/NAME/offsets    i64 [documents + 1], in tokens
//   /splits/NAME/names, bytes, words    one per document
//   /splits/NAME/marks      u8, one per target (data/corpus/documents.h); only in generated corpora
//   /splits/NAME/chance     f64, one per document (Split::chance()); only where the task knows
#pragma once

#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "data/corpus/corpus_manifest.h"
#include "data/corpus/token_spool.h"
#include "data/corpus/written_documents.h"
#include "data/tokenizers/tokenizer.h"

namespace quire {

struct CorpusWriterOptions {
  bool any_bytes = false;         // accept text that is not UTF-8
  bool force = false;             // replace an existing corpus
  bool allow_duplicates = false;  // accept a text that is in two splits
};

class CorpusWriter {
 public:
  // Throws Error(config) when the output exists and may not be replaced. The tokenizer must outlive the writer.
  CorpusWriter(std::filesystem::path output, const Tokenizer& tokenizer, const CorpusWriterOptions& options);
  // Without finish(), removes the written files and leaves an older corpus as it was.
  ~CorpusWriter();
  CorpusWriter(const CorpusWriter&) = delete;
  CorpusWriter& operator=(const CorpusWriter&) = delete;

  // Makes a split. finish() fails when it has no document by then.
  void begin_split(const std::string& split) { documents_.begin_split(split); }
  // Messages name `origin`: the file, and the line of a record. Throws Error(data) when a name occurs twice in a split.
  void begin_document(const std::string& split, const std::string& name, const std::string& origin);
  void append(std::string_view bytes);
  // Appends tokens that were generated as tokens, and the marks of their targets. The last mark of a document is that
  // of EOS.
  void append_tokens(std::span<const int32_t> ids);
  void append_marks(std::span<const uint8_t> marks);
  void set_chance(double chance);  // Split::chance()
  void end_document();             // an empty document is dropped

  int64_t documents(const std::string& split) const { return documents_.documents(split); }
  int64_t dropped(const std::string& split) const { return documents_.dropped(split); }
  // Moves documents from one split to another. Throws Error(data) that names `origin` for an unknown name.
  void move_documents(const std::string& from, const std::string& to, const std::vector<std::string>& names,
                      const std::string& origin) {
    documents_.move_documents(from, to, names, origin);
  }
  // Moves `count` documents, chosen by a hash of their texts: names and order do not matter. Equal texts stay together,
  // so a few more may move.
  void move_share(const std::string& from, const std::string& to, int64_t count) {
    documents_.move_share(from, to, count);
  }

  // Writes both files under other names, flushes and renames them. Throws Error(data) for a split without documents, or
  // a text in two splits. `left_out` goes into the manifest.
  CorpusManifest finish(const std::map<std::string, int64_t>& left_out = {});

 private:
  struct OpenDocument;

  void encode(std::string_view text);
  void count(std::string_view bytes);

  std::filesystem::path output_;
  std::filesystem::path partial_;
  std::filesystem::path manifest_partial_;
  const Tokenizer& tokenizer_;
  CorpusWriterOptions options_;
  TokenSpool spool_;
  WrittenDocuments documents_;
  std::unique_ptr<OpenDocument> document_;
  std::vector<int32_t> ids_;
};

}  // namespace quire
