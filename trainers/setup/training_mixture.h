// The open corpora of data.mix, and the mixture of them and of the tasks.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/batches/mixture.h"
#include "trainers/setup/config.h"

namespace quire {

class TrainingMixture {
 public:
  // Returns nullptr without data.mix. Any fault is an Error that names the entry. `corpus` is data.corpus, whose
  // tokenizer all entries must have; it must outlive the mixture.
  static std::unique_ptr<TrainingMixture> open(const RunConfig& config, Corpus& corpus, Verify verify);

  std::shared_ptr<const Mixture> documents() const { return documents_; }
  // Returns the checksum of the corpus of every entry, empty without one. A resumed run must have the same.
  const std::vector<std::string>& hashes() const { return hashes_; }
  // Returns a line for every entry: what it is, its share of the documents, and how often `tokens` of the mixture read
  // it.
  std::vector<std::string> describe(int64_t tokens) const;

 private:
  Corpus& open_corpus(const MixConfig& entry, const DataConfig& data, Corpus& main, Verify verify,
                      const std::string& where);

  std::vector<std::unique_ptr<Corpus>> corpora_;
  std::vector<std::unique_ptr<Filler>> fillers_;
  std::vector<std::string> hashes_;
  std::vector<std::string> names_;
  std::shared_ptr<const Mixture> documents_;
};

}  // namespace quire
