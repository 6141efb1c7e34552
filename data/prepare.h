// From documents to a corpus: what `quire prepare` does.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "data/corpus_manifest.h"

namespace quire {

struct PrepareOptions {
  std::vector<std::filesystem::path> inputs;  // .txt files and folders
  std::string tokenizer = "byte";
  std::filesystem::path output;
  std::vector<std::string> splits;  // NAME=PATH or NAME=FRACTION
  bool any_bytes = false;           // accept text that is not UTF-8
  bool force = false;               // replace an existing corpus
};

struct PrepareProgress {
  int64_t documents = 0;  // finished
  int64_t total_documents = 0;
  int64_t bytes = 0;  // read
  int64_t total_bytes = 0;
};

struct PrepareReport {
  struct SplitReport {
    SplitTotals totals;
    int64_t dropped = 0;  // empty documents
  };
  std::map<std::string, SplitReport> splits;
  int64_t ignored = 0;  // files that are not documents
  std::string tokenizer;
  int64_t vocabulary = 0;
  std::string checksum;
  int64_t file_bytes = 0;
  double seconds = 0;
};

// The progress function may be empty; it is called after every chunk.
PrepareReport prepare_corpus(const PrepareOptions& options,
                             const std::function<void(const PrepareProgress&)>& progress);

}  // namespace quire
