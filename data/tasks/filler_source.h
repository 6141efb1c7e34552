// A filler as named on a command line: CORPUS, CORPUS:SPLIT (default split train), a text file NAME.txt, or nothing for
// the built-in grammar.
#pragma once

#include "core/ranks/ranks.h"
#include "data/tasks/filler.h"

namespace quire {

class FillerSource {
 public:
  // Throws Error(data) for a corpus or text that cannot be read or is empty, and for a text that is not UTF-8;
  // Error(config) for a split that it does not have. All ranks must call this.
  FillerSource(const std::string& name, Ranks& ranks);

  static bool is_text(const std::string& name) { return name.ends_with(".txt"); }

  // Returns the tokenizer of the corpus; nullptr for a text file and for the built-in grammar.
  const Tokenizer* tokenizer() const { return corpus_ ? &corpus_->tokenizer() : nullptr; }
  // Throws Error(data) when the corpus has another tokenizer. `tokenizer` must outlive the filler.
  std::unique_ptr<Filler> make(const Tokenizer& tokenizer);

  // Returns the path of the corpus or text; empty for the built-in grammar.
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::string split_ = "train";
  std::unique_ptr<Corpus> corpus_;
  std::string text_;
};

}  // namespace quire
