// Reads a corpus. The tokens are mapped into memory, not loaded.
#pragma once

#include <chrono>
#include <filesystem>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "data/corpus/corpus_manifest.h"
#include "data/corpus/corpus_stamp.h"
#include "data/corpus/documents.h"
#include "data/tokenizers/tokenizer.h"

namespace quire {

class Hdf5Reader;

class Split : public Documents {
 public:
  int64_t documents() const { return static_cast<int64_t>(names_.size()); }
  int64_t length(int64_t document) const override;
  void tokens(int64_t document, int64_t begin, int64_t count, int32_t* out) const override;
  // Generated corpora have marks (quire prepare --task).
  void marks(int64_t document, int64_t begin, int64_t count, uint8_t* out) const override;
  bool marked() const override { return marks_ != nullptr; }
  std::string name(int64_t document) const override { return names_.at(static_cast<size_t>(document)); }
  int64_t bytes(int64_t document) const { return bytes_.at(static_cast<size_t>(document)); }
  int64_t words(int64_t document) const { return words_.at(static_cast<size_t>(document)); }
  // Returns how many of the recalled targets of a document the best guess gets right, on average, without having read
  // the facts that they repeat; nothing where the task gives no number.
  std::optional<double> chance(int64_t document) const {
    return chance_.empty() ? std::nullopt : std::optional(chance_.at(static_cast<size_t>(document)));
  }
  const SplitTotals& totals() const { return totals_; }
  std::span<const int64_t> offsets() const { return offsets_; }  // [documents + 1], in stored tokens

 private:
  friend class Corpus;
  // `where` names file and split in messages.
  static Split load(const Hdf5Reader& reader, const std::string& group, const File& file,
                    std::span<const std::byte> mapped, const std::string& where);
  void check_ids(int64_t vocabulary, const std::string& where) const;
  // Throws Error(data) when the file has become shorter: bytes that were just copied may be zeros beyond its new end.
  void require_whole() const;

  DType dtype_ = DType::u8;
  const File* file_ = nullptr;       // belongs to the Corpus
  int64_t file_bytes_ = 0;           // size when it was opened
  const std::byte* data_ = nullptr;  // inside the map of the Corpus
  int64_t place_ = 0;                // byte offset of the tokens in the file
  // inside the map of the Corpus; length + 1 marks of every document, one document after the other
  const uint8_t* marks_ = nullptr;
  std::vector<int64_t> offsets_;
  std::vector<int64_t> bytes_;
  std::vector<int64_t> words_;
  std::vector<std::string> names_;
  std::vector<double> chance_;
  SplitTotals totals_;
};

class Corpus {
 public:
  // Throws Error(data) for any fault of the file. When several processes of a host open it at once, one verifies it and
  // the others wait.
  static std::unique_ptr<Corpus> open(const std::filesystem::path& path, Verify verify = Verify::always,
                                      std::chrono::nanoseconds settle = std::chrono::seconds(2));

  const Tokenizer& tokenizer() const { return *tokenizer_; }
  std::vector<std::string> split_names() const;
  // Returns a split, which lives as long as the corpus. Throws Error(config) for an unknown name. The first use checks
  // every token id of the split.
  const Split& split(const std::string& name);
  // Says that another rank of this host has already checked the token ids of these splits, so that split() does not.
  void trust(std::span<const std::string> splits);
  // Returns the checksum of the file, which checkpoints store.
  const std::string& hash() const { return manifest_.checksum; }
  const CorpusManifest& manifest() const { return manifest_; }
  const std::string& word_rule() const { return word_rule_; }  // the rule by which words were counted (word_counter.h)

 private:
  Corpus(const std::filesystem::path& path, Verify verify, std::chrono::nanoseconds settle);
  void verify(Verify how, std::chrono::nanoseconds settle);
  void read_structure();  // reads tokenizer and splits from HDF5
  std::string describe(const std::string& split) const;

  std::filesystem::path path_;
  CorpusManifest manifest_;
  std::optional<File> file_;
  std::unique_ptr<MappedFile> map_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::string word_rule_;
  std::map<std::string, Split> splits_;
  std::mutex mutex_;
  std::set<std::string> checked_;       // splits whose token ids were checked
  std::unique_ptr<CorpusStamp> stamp_;  // only with Verify::once
};

}  // namespace quire
