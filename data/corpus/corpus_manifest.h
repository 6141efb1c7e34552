// CORPUS.manifest: a JSON file beside the corpus with its size, its checksum and a summary. HDF5 opens the corpus only
// after both were found right.
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
  int64_t bytes = 0;   // of the original text
  int64_t words = 0;   // whitespace-separated runs of the original text
  bool operator==(const SplitTotals&) const = default;
};

struct CorpusManifest {
  int64_t size = 0;      // of the corpus file
  std::string checksum;  // XXH3 of the corpus file
  std::string tokenizer;
  int64_t vocabulary = 0;
  std::map<std::string, SplitTotals> splits;
  std::map<std::string, int64_t> left_out = {};  // records of the inputs that could not be read, by what is wrong
};

std::filesystem::path manifest_path(const std::filesystem::path& corpus);
std::string manifest_to_json(const CorpusManifest& manifest);
// A missing or unreadable manifest is Error(data).
CorpusManifest read_manifest(const std::filesystem::path& corpus);
// quire prepare renames the corpus and then its manifest. Where it was killed in between, the manifest is under its
// other name: it gets its own. Error(data) when it cannot be renamed.
void finish_interrupted_corpus(const std::filesystem::path& corpus);
// A wrong size is Error(data).
void require_size(const File& corpus, const CorpusManifest& manifest);
// Reads the open corpus file to its end. A wrong size or checksum is Error(data).
void verify_against_manifest(File& corpus, const CorpusManifest& manifest);

}  // namespace quire
