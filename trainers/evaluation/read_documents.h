// Selects the documents that an evaluation reads, and counts what is read of them.
#pragma once

#include <optional>
#include <vector>

#include "data/corpus/corpus.h"
#include "trainers/evaluation/evaluation_options.h"
#include "trainers/evaluation/evaluation_result.h"

namespace quire {

// The documents to read, in ascending order.
struct ReadDocuments {
  std::vector<int64_t> documents;
  std::optional<int64_t> last_targets;  // the number of targets to read of the last document; nothing: all

  std::optional<int64_t> cut(int64_t document) const {
    return last_targets && document == documents.back() ? last_targets : std::nullopt;
  }
};

ReadDocuments documents_of(const EvaluationOptions& options, const Split& split);

// Fills in the documents of the result, except their losses. `last`: as in EvaluationOptions.
void list_documents(const Split& split, const Tokenizer& tokenizer, bool score_first_token, const ReadDocuments& read,
                    const std::optional<int64_t>& last, EvaluationResult& result);

// Returns how many parts re.split(r"\s+") of Python makes of a document: its words, and one more for white space at its
// beginning and at its end. Tokens must write the bytes of the text.
int64_t parts_between_blanks(const Split& split, const Tokenizer& tokenizer, int64_t document);

}  // namespace quire
