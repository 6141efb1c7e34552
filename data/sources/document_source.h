// Where documents are: .txt files and .jsonl files, each also as .gz and .zst, alone or in folders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace quire {

enum class FileFormat : uint8_t {
  text,     // one document
  records,  // .jsonl: a document a line
};

struct DocumentFile {
  std::string name;  // path relative to the folder that was given, with '/', without the endings
  std::filesystem::path path;
  int64_t bytes = 0;  // of the file as it is on disk
  FileFormat format = FileFormat::text;
};

struct DocumentList {
  std::vector<DocumentFile> documents;  // sorted by name
  int64_t ignored = 0;                  // files of other kinds
  int64_t hidden = 0;                   // files and folders whose names begin with a dot, as programs leave behind
};

// A file, or a folder with everything below it that is not hidden. Nothing found is Error(data).
DocumentList find_documents(const std::filesystem::path& input);

}  // namespace quire
