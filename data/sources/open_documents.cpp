#include "data/sources/open_documents.h"

#include <utility>

#include "data/sources/open_byte_source.h"
#include "data/sources/record_reader.h"

namespace quire {

namespace {

class TextReader : public DocumentReader {
 public:
  TextReader(const DocumentFile& file, size_t chunk)
      : name_(file.name), path_(file.path.string()), source_(open_byte_source(file.path)), buffer_(chunk, '\0') {}

  bool next_document() override { return !std::exchange(begun_, true); }
  const std::string& name() const override { return name_; }
  std::string where() const override { return path_; }
  std::string_view next() override { return std::string_view(buffer_).substr(0, source_->read(buffer_)); }
  int64_t consumed() const override { return source_->consumed(); }

 private:
  std::string name_;
  std::string path_;
  std::unique_ptr<ByteSource> source_;
  std::string buffer_;
  bool begun_ = false;
};

}  // namespace

std::unique_ptr<DocumentReader> open_documents(const DocumentFile& file, const RecordKeys& keys, size_t chunk) {
  if (file.format == FileFormat::records) return std::make_unique<RecordReader>(file, keys, chunk);
  return std::make_unique<TextReader>(file, chunk);
}

}  // namespace quire
