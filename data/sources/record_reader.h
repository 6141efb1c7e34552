// .jsonl files: one JSON object per line, with the text of a document in one of its keys.
#pragma once

#include "data/sources/byte_source.h"
#include "data/sources/document_reader.h"

namespace quire {

class RecordReader : public DocumentReader {
 public:
  // The largest record. JSON is parsed as a whole, so a record needs memory of a few times its size; a longer one is
  // Error(data).
  static constexpr size_t kLongestRecord = size_t{1} << 28;

  RecordReader(const DocumentFile& file, RecordKeys keys, size_t chunk, size_t longest = kLongestRecord);
  bool next_document() override;
  const std::string& name() const override { return name_; }
  std::string where() const override;
  std::string_view next() override;
  int64_t consumed() const override { return source_->consumed(); }

 private:
  bool next_line();
  bool parse();
  // Counts or throws the error of a bad record; returns false when the record is left out.
  bool refuse(const std::string& kind, const std::string& what) const;

  std::string file_name_;
  std::string path_;
  RecordKeys keys_;
  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  size_t used_ = 0;
  size_t filled_ = 0;
  size_t longest_;
  std::string line_;
  int64_t line_number_ = 0;
  std::string name_;
  std::string text_;
  size_t given_ = 0;  // bytes of the text already returned
};

}  // namespace quire
