#include "data/corpus/corpus_output.h"

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/files/hdf5_file.h"
#include "core/files/output_file.h"
#include "core/json.h"
#include "data/corpus/corpus_manifest.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

constexpr const char* kCorpus = "a corpus with a manifest beside it";
constexpr const char* kManifest = "the manifest of a corpus";

// Returns whether a file begins like HDF5. A file whose writing was interrupted may be empty, or have zeros at its
// beginning, which is written last.
bool begins_like_hdf5(const fs::path& path) {
  std::error_code ignored;
  const std::string begin = first_bytes(path, kHdf5Signature.size());
  return fs::file_size(path, ignored) == 0 || begin == kHdf5Signature ||
         begin == std::string(kHdf5Signature.size(), '\0');
}

// Accepts a manifest of any version and content.
bool is_manifest(const fs::path& path) {
  try {
    const nlohmann::json json = parse_json(read_text_file(path));
    return json.is_object() && json.value("format", "") == kCorpusFormat;
  } catch (const std::exception&) {
    return false;
  }
}

bool is_corpus(const fs::path& path) {
  return begins_like_hdf5(path) && is_manifest(manifest_path(path));
}

// Accepts any beginning of a manifest, because its writing may have been interrupted anywhere.
bool is_part_of_manifest(const fs::path& path) {
  const std::string begin = fmt::format("{{\n  \"format\": \"{}\"", kCorpusFormat);
  const std::string text = first_bytes(path, begin.size());
  return text == begin.substr(0, text.size());
}

}  // namespace

void require_corpus_output(const fs::path& output, bool force) {
  std::error_code ignored;
  if (fs::is_directory(output, ignored)) {
    fail(ErrorKind::config, "{}: the output is a folder; give a file name such as corpus.h5", output.string());
  }
  require_output_folder(output, "--output");
  finish_interrupted_corpus(output);
  const fs::path manifest = manifest_path(output);
  const bool exists = is_replaceable(output, kCorpus, is_corpus);
  const bool described = is_replaceable(manifest, kManifest, is_manifest);
  if (exists && !force) fail(ErrorKind::config, "{}: exists already; use --force to replace it", output.string());
  if (described && !force) {
    fail(ErrorKind::config, "{}: exists already, without its corpus; use --force to replace it", manifest.string());
  }
  is_replaceable(with_suffix(output, ".partial"), "what quire prepare began to write", begins_like_hdf5);
  is_replaceable(with_suffix(manifest, ".partial"), "what quire prepare began to write", is_part_of_manifest);
}

}  // namespace quire
