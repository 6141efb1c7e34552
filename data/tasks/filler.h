// The text between the facts of a generated document. It has any length, and each part of it can be made without the
// rest, so that a document of millions of tokens is never in memory.
#pragma once

#include <memory>
#include <optional>
#include <vector>

#include "data/corpus/corpus.h"
#include "data/tasks/task_random.h"
#include "data/tokenizers/tokenizer.h"

namespace quire {

// The filler of one document.
class FillerText {
 public:
  virtual ~FillerText() = default;
  // Copies tokens [begin, begin + count).
  virtual void tokens(int64_t begin, int64_t count, int32_t* out) = 0;
  // Appends a sentence, or a similar amount of corpus text, for documents that are made sentence by sentence.
  virtual void passage(TaskRandom& random, std::vector<int32_t>& out) = 0;
};

class Filler {
 public:
  virtual ~Filler() = default;
  virtual std::unique_ptr<FillerText> open(const DocumentKey& document) const = 0;
};

// Returns sentences of the built-in grammar (data/tasks/prose.h). The tokenizer must outlive it.
std::unique_ptr<Filler> make_prose_filler(const Tokenizer& tokenizer);
// Returns the documents of a split as one endless text; each generated document begins at a random place in it. The
// split must outlive the filler.
std::unique_ptr<Filler> make_corpus_filler(const Split& split);
// Returns one text, which must not be empty, again and again.
std::unique_ptr<Filler> make_text_filler(std::vector<int32_t> ids);

}  // namespace quire
