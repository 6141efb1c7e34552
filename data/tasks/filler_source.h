// A filler as named on a command line: CORPUS, CORPUS:SPLIT (default split train), or nothing for the built-in grammar.
#pragma once

#include "core/ranks/ranks.h"
#include "data/tasks/filler.h"

namespace quire {

class FillerSource {
 public:
  // Throws Error(data) for a corpus that cannot be read, Error(config) for a split that it does not have. All ranks
  // must call this.
  FillerSource(const std::string& name, Ranks& ranks);

  // Returns the tokenizer of the corpus; nullptr for the built-in grammar.
  const Tokenizer* tokenizer() const { return corpus_ ? &corpus_->tokenizer() : nullptr; }
  // Throws Error(data) when the corpus has another tokenizer. `tokenizer` must outlive the filler.
  std::unique_ptr<Filler> make(const Tokenizer& tokenizer);

  // Returns the path of the corpus; empty for the built-in grammar.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string split_ = "train";
  std::unique_ptr<Corpus> corpus_;
};

}  // namespace quire
