#include "data/document_source.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

bool is_text_file(const fs::path& path) {
  std::string extension = path.extension().string();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return extension == ".txt";
}

DocumentFile describe(const fs::path& path, const fs::path& name) {
  return {fs::path(name).replace_extension().generic_string(), path, static_cast<int64_t>(fs::file_size(path))};
}

DocumentList find_in_folder(const fs::path& folder) {
  DocumentList list;
  for (const fs::directory_entry& entry : fs::recursive_directory_iterator(folder)) {
    if (!entry.is_regular_file()) continue;
    if (is_text_file(entry.path())) {
      list.documents.push_back(describe(entry.path(), entry.path().lexically_relative(folder)));
    } else {
      ++list.ignored;
    }
  }
  if (list.documents.empty()) {
    fail(ErrorKind::data, "{}: no .txt file in this folder ({} files of other kinds)", folder.string(), list.ignored);
  }
  return list;
}

}  // namespace

DocumentList find_documents(const fs::path& input) {
  DocumentList list;
  try {
    if (fs::is_directory(input)) {
      list = find_in_folder(input);
    } else if (!fs::exists(input)) {
      fail(ErrorKind::data, "{}: no such file or folder", input.string());
    } else if (!fs::is_regular_file(input) || !is_text_file(input)) {
      fail(ErrorKind::data, "{}: not a .txt file or a folder of them", input.string());
    } else {
      list.documents.push_back(describe(input, input.filename()));
    }
  } catch (const fs::filesystem_error& error) {
    fail(ErrorKind::data, "{}: cannot be listed: {}", input.string(), error.code().message());
  }
  // The order in which a file system lists a folder is not the same everywhere.
  std::sort(list.documents.begin(), list.documents.end(),
            [](const DocumentFile& a, const DocumentFile& b) { return a.name < b.name; });
  return list;
}

DocumentReader::DocumentReader(const DocumentFile& document, size_t chunk)
    : file_(File::open(document.path)), buffer_(chunk, '\0') {}

std::string_view DocumentReader::next() {
  const size_t count = file_.read(std::as_writable_bytes(std::span(buffer_)));
  return std::string_view(buffer_).substr(0, count);
}

}  // namespace quire
