// Documents: .txt files, alone or in folders. They are listed first and read in chunks, never whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "core/file.h"

namespace quire {

struct DocumentFile {
  std::string name;  // path relative to the folder that was given, with '/', without .txt
  std::filesystem::path path;
  int64_t bytes = 0;
};

struct DocumentList {
  std::vector<DocumentFile> documents;  // sorted by name
  int64_t ignored = 0;                  // files of other kinds
};

// A .txt file, or a folder with everything below it. Nothing found is Error(data).
DocumentList find_documents(const std::filesystem::path& input);

class DocumentReader {
 public:
  static constexpr size_t kChunk = size_t{1} << 20;

  explicit DocumentReader(const DocumentFile& document, size_t chunk = kChunk);
  // The next bytes, valid until the next call; empty at the end of the document.
  std::string_view next();

 private:
  File file_;
  std::string buffer_;
};

}  // namespace quire
