// A filler as named on a command line: CORPUS, CORPUS:SPLIT (default split train), or nothing for the built-in grammar.
#pragma once

#include "core/ranks/ranks.h"
#include "data/tasks/filler.h"

namespace quire {

class FillerSource {
 public:
  // Error(data) for a corpus that cannot be read, Error(config) for a split that it does not have. All ranks call this.
  FillerSource(const std::string& name, Ranks& ranks);

  // Of the corpus; nullptr for the built-in grammar.
  const Tokenizer* tokenizer() const { return corpus_ ? &corpus_->tokenizer() : nullptr; }
  // Error(data) when the corpus has another tokenizer, which must outlive the filler.
  std::unique_ptr<Filler> make(const Tokenizer& tokenizer);

  // The corpus; empty for the built-in grammar.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string split_ = "train";
  std::unique_ptr<Corpus> corpus_;
};

}  // namespace quire
