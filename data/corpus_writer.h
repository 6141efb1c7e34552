// Writes a corpus: one HDF5 file and its manifest. Memory use does not grow with the documents' length.
//
//   /                       attributes format, version
//   /tokenizer              text of Tokenizer::serialise()
//   /splits/NAME/tokens     u8, u16 or i32, all documents one after the other, contiguous in the file
//   /splits/NAME/offsets    i64 [documents + 1], in tokens
//   /splits/NAME/names, bytes, words    one per document
#pragma once

#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/dtype.h"
#include "data/corpus_manifest.h"
#include "data/tokenizer.h"

namespace quire {

struct CorpusWriterOptions {
  bool any_bytes = false;  // accept text that is not UTF-8
  bool force = false;      // replace an existing corpus
};

class CorpusWriter {
 public:
  // Error(config) when the output exists and may not be replaced. The tokenizer must outlive the writer.
  CorpusWriter(std::filesystem::path output, const Tokenizer& tokenizer, const CorpusWriterOptions& options);
  // Without finish(), removes what was written and leaves an older corpus as it was.
  ~CorpusWriter();
  CorpusWriter(const CorpusWriter&) = delete;
  CorpusWriter& operator=(const CorpusWriter&) = delete;

  // A split exists from here on, and finish() wants a document in it.
  void begin_split(const std::string& split);
  // `origin` is the file that messages name.
  void begin_document(const std::string& split, const std::string& name, const std::string& origin);
  void append(std::string_view bytes);
  void end_document();  // an empty document is dropped

  int64_t dropped(const std::string& split) const;
  // Writes both files under other names, flushes and renames them. A split without documents is Error(data).
  CorpusManifest finish();

 private:
  // Tokens go to a scratch file first: a contiguous dataset cannot grow.
  struct Spool {
    explicit Spool(File scratch) : file(std::move(scratch)) {}
    File file;
    std::vector<std::byte> buffer;
    std::vector<int64_t> offsets{0};
    std::vector<int64_t> bytes;
    std::vector<int64_t> words;
    std::vector<std::string> names;
    int64_t dropped = 0;
  };
  struct OpenDocument;

  void store(Spool& spool, std::span<const int32_t> ids) const;
  void write_file();

  std::filesystem::path output_;
  std::filesystem::path partial_;
  std::filesystem::path manifest_partial_;
  const Tokenizer& tokenizer_;
  CorpusWriterOptions options_;
  DType dtype_;
  std::map<std::string, Spool> spools_;
  std::unique_ptr<OpenDocument> document_;
  std::vector<int32_t> ids_;
};

}  // namespace quire
