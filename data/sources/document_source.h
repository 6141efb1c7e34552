// Finds documents: .txt files and .jsonl files, each also as .gz and .zst, alone or in folders.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <vector>

namespace quire {

enum class FileFormat : uint8_t {
  text,     // one document
  records,  // .jsonl: a document per line
};

struct DocumentFile {
  std::string name;  // path relative to the folder that was given, with '/', without the endings
  std::filesystem::path path;
  int64_t bytes = 0;  // size of the file on disk
  FileFormat format = FileFormat::text;
};

struct DocumentList {
  std::vector<DocumentFile> documents;  // sorted by name
  int64_t ignored = 0;                  // files of other kinds
  int64_t hidden = 0;                   // files and folders whose names begin with a dot, which programs leave behind
};

// Returns a file, or everything in and below a folder that is not hidden. Throws Error(data) when nothing is found.
DocumentList find_documents(const std::filesystem::path& input);

}  // namespace quire
