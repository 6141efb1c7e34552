// CORPUS.manifest: a JSON file beside the corpus with its size, its checksum and a summary. HDF5 opens the corpus only
// after size and checksum were verified.
#pragma once

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>

#include "core/files/file.h"

namespace quire {

inline constexpr const char* kCorpusFormat = "quire corpus";
inline constexpr int64_t kCorpusVersion = 1;

struct SplitTotals {
  int64_t documents = 0;
  int64_t tokens = 0;  // as stored, without BOS and EOS
  int64_t bytes = 0;   // bytes of the original text
  int64_t words = 0;   // whitespace-separated runs of the original text
  bool operator==(const SplitTotals&) const = default;
};

struct CorpusManifest {
  int64_t size = 0;      // size of the corpus file
  std::string checksum;  // XXH3 of the corpus file
  std::string tokenizer;
  int64_t vocabulary = 0;
  std::map<std::string, SplitTotals> splits;
  std::map<std::string, int64_t> left_out = {};  // number of records of the inputs that could not be read, by cause
};

std::filesystem::path manifest_path(const std::filesystem::path& corpus);
std::string manifest_to_json(const CorpusManifest& manifest);
// Throws Error(data) when the manifest is missing or unreadable.
CorpusManifest read_manifest(const std::filesystem::path& corpus);
// Completes a corpus after quire prepare was killed between renaming the corpus and renaming its manifest: the manifest
// is renamed now. Throws Error(data) when it cannot be renamed.
void finish_interrupted_corpus(const std::filesystem::path& corpus);
// Throws Error(data) for a wrong size.
void require_size(const File& corpus, const CorpusManifest& manifest);
// Reads the open corpus file to its end. Throws Error(data) for a wrong size or checksum.
void verify_against_manifest(File& corpus, const CorpusManifest& manifest);

}  // namespace quire
