#include "trainers/evaluation/read_documents.h"

#include <algorithm>

#include "data/sources/word_counter.h"

namespace quire {

namespace {

// Returns how many targets of a document count, from its `first` one up to `targets`.
int64_t counted_targets(const Split& split, int64_t document, int64_t first, int64_t targets) {
  if (!split.marked()) return targets - first;
  constexpr int64_t kPiece = int64_t{1} << 16;
  std::vector<uint8_t> marks;
  int64_t counted = 0;
  for (int64_t begin = first; begin < targets; begin += kPiece) {
    marks.resize(static_cast<size_t>(std::min(kPiece, targets - begin)));
    split.marks(document, begin, static_cast<int64_t>(marks.size()), marks.data());
    for (const uint8_t mark : marks) counted += (mark & kCounted) != 0 ? 1 : 0;
  }
  return counted;
}

// Returns the number of bytes that the tokenizer writes for the first tokens.
int64_t first_bytes(const Split& split, const Tokenizer& tokenizer, int64_t document, int64_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(std::min(count, split.length(document))));
  split.tokens(document, 0, static_cast<int64_t>(ids.size()), ids.data());
  const auto bytes = static_cast<int64_t>(tokenizer.decode(ids).size());
  return std::min(bytes, split.bytes(document));  // a lossy tokenizer may write more than it read
}

}  // namespace

ReadDocuments documents_of(const EvaluationOptions& options, const Split& split) {
  if (!options.only.empty()) return {options.only, std::nullopt};
  ReadDocuments read;
  const int64_t count = std::min(options.documents.value_or(split.documents()), split.documents());
  int64_t left = options.tokens.value_or(INT64_MAX);
  for (int64_t document = 0; document < count && left > 0; ++document) {
    const int64_t targets = split.length(document) + 1;
    read.documents.push_back(document);
    if (targets > left) read.last_targets = left;
    left -= std::min(left, targets);
  }
  return read;
}

int64_t parts_between_blanks(const Split& split, const Tokenizer& tokenizer, int64_t document) {
  const int64_t length = split.length(document);
  if (length == 0) return 1;
  // A space has at most three bytes, and a token at least one.
  std::vector<int32_t> ids(static_cast<size_t>(std::min<int64_t>(length, 4)));
  const auto words_of = [](const std::string& text) {
    WordCounter counter;
    counter.feed(text);
    return counter.words();
  };
  const auto text_at = [&](int64_t begin) {
    split.tokens(document, begin, static_cast<int64_t>(ids.size()), ids.data());
    return tokenizer.decode(ids);
  };
  // A letter beside white space is one more word, a letter beside a word is not.
  const std::string head = text_at(0), tail = text_at(length - static_cast<int64_t>(ids.size()));
  return split.words(document) + (words_of("x" + head) - words_of(head)) + (words_of(tail + "x") - words_of(tail));
}

void list_documents(const Split& split, const Tokenizer& tokenizer, bool score_first_token, const ReadDocuments& read,
                    const std::optional<int64_t>& last, EvaluationResult& result) {
  for (const int64_t document : read.documents) {
    const std::optional<int64_t> cut = read.cut(document);
    const int64_t all = cut.value_or(split.length(document) + 1);
    const int64_t left_out = std::max<int64_t>(score_first_token ? 0 : 1, last ? all - *last : 0);
    const int64_t targets = counted_targets(split, document, left_out, all);
    result.has_text = result.has_text && targets == all - left_out && !((cut || last) && tokenizer.lossy());
    const int64_t until = cut ? first_bytes(split, tokenizer, document, *cut) : split.bytes(document);
    const int64_t bytes = until - first_bytes(split, tokenizer, document, left_out);
    result.documents.push_back({split.name(document), targets, split.words(document), bytes, 0.0, {}, {}});
    if (const std::optional<double> chance = split.chance(document); chance && !cut && !last) {
      result.documents.back().recall.chance = chance;
      result.recall->chance = result.recall->chance.value_or(0) + *chance;
    }
    result.tokens += targets;
    result.words += split.words(document);
    result.bytes += bytes;
  }
  result.has_words = result.has_text && score_first_token && !read.last_targets && !last;
}

}  // namespace quire
