// The text of a filler as words and sentences, for questions that hide facts in it.
#pragma once

#include <string>
#include <vector>

#include "data/tasks/filler.h"

namespace quire {

class BackgroundText {
 public:
  // Both must outlive it.
  BackgroundText(FillerText& filler, const Tokenizer& tokenizer) : filler_(filler), tokenizer_(tokenizer) {}

  // Returns the sentences of the first `words` words, of which the last may be cut. One space stands between words. A
  // sentence ends with a word that ends with '.', '!' or '?', also before quotes and brackets, and after 60 words.
  // Throws Error(data) when the filler has no words.
  std::vector<std::string> sentences(int64_t words);
  // Returns the number of tokens of a text.
  int64_t tokens_of(const std::string& text) const;

 private:
  void read_words(int64_t count);
  void read_more_words(int64_t count);
  void add_words();

  FillerText& filler_;
  const Tokenizer& tokenizer_;
  int64_t read_ = 0;   // tokens of the filler
  int64_t begun_ = 0;  // words before the first whole sentence
  std::string rest_;   // the beginning of the word after the last one
  std::vector<std::string> words_;
};

}  // namespace quire
