// Makes a corpus from documents, for `quire prepare`.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "data/corpus/corpus_manifest.h"
#include "data/sources/document_reader.h"
#include "data/tokenizers/tokenizer.h"

namespace quire {

struct PrepareOptions {
  std::vector<std::filesystem::path> inputs;  // files and folders
  RecordKeys keys;                            // keys of .jsonl records
  std::string tokenizer = "byte";
  std::filesystem::path output;
  bool lossy_tokenizer = false;     // accept a tokenizer that alters text
  std::vector<std::string> splits;  // NAME=PATH, NAME=@LIST or NAME=FRACTION
  bool any_bytes = false;           // accept text that is not UTF-8
  bool skip_bad_records = false;    // leave out .jsonl records that cannot be read
  bool allow_duplicates = false;    // accept a text that is in two splits
  bool force = false;               // replace an existing corpus
};

struct PrepareProgress {
  int64_t documents = 0;  // finished documents
  int64_t bytes = 0;      // bytes of the files read so far
  int64_t total_bytes = 0;
};

struct PrepareReport {
  struct SplitReport {
    SplitTotals totals;
    int64_t dropped = 0;          // empty documents
    std::optional<double> asked;  // the share of the inputs that NAME=FRACTION requested
    double share = 0;             // the share of the inputs' text that the split received
    int64_t of_documents = 0;     // the number of the inputs' documents
  };
  std::map<std::string, SplitReport> splits;
  int64_t ignored = 0;                      // files that are not documents
  int64_t hidden = 0;                       // files and folders whose names begin with a dot
  std::map<std::string, int64_t> left_out;  // number of records, by what is wrong with them
  std::string tokenizer;
  bool lossy = false;  // the tokenizer alters text; bytes and words are those of the original
  int64_t vocabulary = 0;
  std::string checksum;
  int64_t file_bytes = 0;
  double seconds = 0;
};

// Returns the report that a finished corpus file gives; its splits lack the numbers of dropped documents.
PrepareReport report_of(const CorpusManifest& manifest, const Tokenizer& tokenizer);

// `progress` may be empty; it is called after every chunk.
PrepareReport prepare_corpus(const PrepareOptions& options,
                             const std::function<void(const PrepareProgress&)>& progress);

}  // namespace quire
