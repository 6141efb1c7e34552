#include "data/sources/document_source.h"

#include <algorithm>
#include <optional>
#include <tuple>

#include "core/check.h"
#include "data/sources/byte_source.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

constexpr const char* kKinds = ".txt, .jsonl, either also with .gz or .zst";

struct Kind {
  FileFormat format;
  std::string name;  // without the endings
};

std::optional<Kind> kind_of(fs::path name) {
  if (compression_of(name) != Compression::none) name.replace_extension();
  std::string extension = name.extension().string();
  for (char& c : extension) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  if (extension != ".txt" && extension != ".jsonl") return std::nullopt;
  return Kind{extension == ".txt" ? FileFormat::text : FileFormat::records, name.replace_extension().generic_string()};
}

// Adds the file when it contains documents.
void add_file(const fs::path& path, const fs::path& name, DocumentList& list) {
  const std::optional<Kind> kind = kind_of(name);
  if (!kind) {
    ++list.ignored;
    return;
  }
  list.documents.push_back({kind->name, path, static_cast<int64_t>(fs::file_size(path)), kind->format});
}

}  // namespace

DocumentList find_documents(const fs::path& input) {
  DocumentList list;
  try {
    if (fs::is_directory(input)) {
      for (fs::recursive_directory_iterator at(input); at != fs::recursive_directory_iterator(); ++at) {
        const fs::directory_entry& entry = *at;
        if (entry.path().filename().string().starts_with('.')) {
          ++list.hidden;
          at.disable_recursion_pending();
          continue;
        }
        if (entry.is_regular_file()) add_file(entry.path(), entry.path().lexically_relative(input), list);
      }
      if (list.documents.empty()) {
        fail(ErrorKind::data, "{}: no document in this folder, but {} files of other kinds{}; documents are {}",
             input.string(), list.ignored, list.hidden > 0 ? fmt::format(" and {} that are hidden", list.hidden) : "",
             kKinds);
      }
    } else if (!fs::exists(input)) {
      fail(ErrorKind::data, "{}: no such file or folder", input.string());
    } else {
      if (fs::is_regular_file(input)) add_file(input, input.filename(), list);
      if (list.documents.empty()) {
        fail(ErrorKind::data, "{}: neither a document nor a folder of them; documents are {}", input.string(), kKinds);
      }
    }
  } catch (const fs::filesystem_error& error) {
    fail(ErrorKind::data, "{}: cannot be listed: {}", input.string(), error.code().message());
  }
  // Names are sorted, because file systems list folders in different orders.
  std::sort(list.documents.begin(), list.documents.end(), [](const DocumentFile& a, const DocumentFile& b) {
    return std::tie(a.name, a.path) < std::tie(b.name, b.path);
  });
  return list;
}

}  // namespace quire
