// Finds out from a tokenizer's file whether it alters text, and where a text may be cut.
#include <algorithm>
#include <bit>

#include "core/check.h"
#include "data/sources/utf8.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/byte_letters.h"
#include "data/tokenizers/characters.h"

namespace quire {

namespace {

using Cutting = PreTokenizer::Cutting;

constexpr char32_t kMarkCharacter = 0x2581;
// A cut is looked for in so many bytes at the end of a text.
constexpr size_t kNearEnd = size_t{1} << 16;

bool is_ascii_graphic(char c) {
  return c > ' ' && c < 0x7F;
}

// Says whether the character before `end` is certainly neither a space nor the mark for one.
bool follows_other(std::string_view text, size_t end) {
  if (end == 0) return false;
  if (static_cast<uint8_t>(text[end - 1]) < 0x80) return is_ascii_graphic(text[end - 1]);
  const char32_t character = character_at(text, character_before(text, end));
  return character != 0 && character != kMarkCharacter && !is_space_character(character);
}

// Says whether a token reaches over a place where a text may be cut.
bool reaches_over_cuts(const std::string& content) {
  for (size_t at = 1; at < content.size(); ++at) {
    const bool space = content[at] == ' ' && content[at - 1] != ' ';
    const bool line = content[at - 1] == '\n' && content[at] != '\n';
    if (space || line || content.compare(at, 3, "\xE2\x96\x81") == 0) return true;
  }
  return false;
}

// Returns where the text begins behind the last token that no further text can change.
size_t open_section(const AddedTokenFinder& finder, std::string_view text, size_t limit) {
  if (finder.empty()) return 0;
  std::vector<AddedTokenFinder::Part> parts;
  finder.split(text, false, parts);
  size_t begin = 0;
  for (const AddedTokenFinder::Part& part : parts) {
    if (part.id >= 0 && part.begin < limit) begin = part.end;
  }
  return begin;
}

}  // namespace

void BpeTokenizer::require_unreachable(int32_t id, const char* name) const {
  bool reached = id == spec_.unknown && !model_.writes_every_byte();
  for (const BpeMerge& merge : spec_.merges) reached = reached || merge.result == id;
  // A byte or a character by itself.
  if (static_cast<size_t>(id) < spec_.tokens.size() && !spec_.tokens[static_cast<size_t>(id)].empty()) {
    const std::string& token = spec_.tokens[static_cast<size_t>(id)];
    reached = reached || character_before(token, token.size()) == 0 || text_of(id).size() == 1;
  }
  if (reached) {
    fail(ErrorKind::data, "{} is token {}, \"{}\", which ordinary text becomes as well; name another one", name, id,
         text_of(id));
  }
}

void BpeTokenizer::fill_texts() {
  texts_.resize(static_cast<size_t>(spec_.vocabulary));
  for (size_t id = 0; id < spec_.tokens.size(); ++id) {
    const std::string& token = spec_.tokens[id];
    texts_[id] = token;
    if (spec_.byte_level) texts_[id] = from_byte_letters(token).value_or(token);
    if (!spec_.mark.empty()) replace_all(texts_[id], spec_.mark, " ");
  }
  if (spec_.byte_fallback) {
    for (int byte = 0; byte < 256; ++byte) {
      const int32_t id = model_.byte_id(static_cast<uint8_t>(byte));
      if (id >= 0) texts_[static_cast<size_t>(id)] = std::string(1, static_cast<char>(byte));
    }
  }
  for (const AddedToken& token : spec_.added) texts_[static_cast<size_t>(token.id)] = token.content;
}

void BpeTokenizer::add_alteration(bool it_is, const std::string& how) {
  if (!it_is) return;
  if (!alterations_.empty()) alterations_ += ", ";
  alterations_ += how;
}

void BpeTokenizer::find_alterations() {
  add_alteration(normalizer_.composes(), "it normalises characters");
  add_alteration(normalizer_.prepends(), "it adds a space in front");
  const bool replaces = std::any_of(spec_.normalizer.begin(), spec_.normalizer.end(), [](const NormalizerStep& step) {
    return step.kind == NormalizerStep::Kind::replace;
  });
  add_alteration(replaces, "it writes spaces otherwise");
  add_alteration(!pre_tokenizer_.alterations().empty(), pre_tokenizer_.alterations());
  add_alteration(!model_.writes_every_byte(), "it has no token for some bytes");
  const bool swallows = std::any_of(spec_.added.begin(), spec_.added.end(), [](const AddedToken& token) {
    return !token.special && (token.lstrip || token.rstrip);
  });
  add_alteration(swallows, "its added tokens swallow spaces");
}

// A text without spaces, where the mark stands for them, is one word, unless the merges never reach over the mark.
void BpeTokenizer::find_word_mark() {
  const bool whole = spec_.pre_tokenizer.empty() || (spec_.pre_tokenizer.size() == 1 &&
                                                     spec_.pre_tokenizer[0].kind == PreTokenizerStep::Kind::metaspace &&
                                                     !spec_.pre_tokenizer[0].splits);
  if (!whole || spec_.ignore_merges) return;
  std::string mark = spec_.pre_tokenizer.empty() ? "" : spec_.pre_tokenizer[0].mark;
  for (const NormalizerStep& step : spec_.normalizer) {
    if (step.kind == NormalizerStep::Kind::replace && step.from == " ") mark = step.to;
  }
  if (model_.mark_begins_words(mark)) word_mark_ = mark;
}

void BpeTokenizer::find_cutting() {
  find_word_mark();
  cutting_ = pre_tokenizer_.cutting();
  settles_ = normalizer_.empty() && (cutting_ == Cutting::between_lines || cutting_ == Cutting::where_settled);
  for (const NormalizerStep& step : spec_.normalizer) {
    using Kind = NormalizerStep::Kind;
    const bool composes = step.kind == Kind::nfc || step.kind == Kind::nfd;  // not over an ASCII character
    const bool writes_mark = step.kind == Kind::prepend || (step.kind == Kind::replace && step.from == " ");
    if (spec_.byte_level ? !composes : !writes_mark) cutting_ = Cutting::nowhere;
  }
  const bool splits = !spec_.pre_tokenizer.empty() && spec_.pre_tokenizer[0].splits;
  if (!spec_.byte_level && !splits && word_mark_.empty()) cutting_ = Cutting::nowhere;
  if (!spec_.byte_level && cutting_ != Cutting::at_spaces) cutting_ = Cutting::nowhere;
  if (cutting_ == Cutting::where_settled && !settles_) cutting_ = Cutting::nowhere;
  for (const AddedToken& token : spec_.added) {
    longest_added_ = std::max(longest_added_, token.content.size());
    const bool looks_around = !token.special && (token.single_word || token.lstrip || token.rstrip);
    if (looks_around || (reaches_over_cuts(token.content) && !settles_)) cutting_ = Cutting::nowhere;
    if (reaches_over_cuts(token.content) && cutting_ == Cutting::between_lines) cutting_ = Cutting::where_settled;
  }
}

bool BpeTokenizer::cuts_between(std::string_view text, size_t at) const {
  if (text[at] == ' ') return follows_other(text, at);
  if (cutting_ != Cutting::between_lines || text[at - 1] != '\n') return false;
  return follows_other(text, at - 1) && is_letter_or_number(character_at(text, at));
}

size_t BpeTokenizer::divisible_prefix(std::string_view text) const {
  if (cutting_ == Cutting::at_spaces || cutting_ == Cutting::between_lines) {
    const size_t first = text.size() > kNearEnd ? text.size() - kNearEnd : 0;
    for (size_t at = text.size(); at > first + 1; --at) {
      if (cuts_between(text, at - 1)) return at - 1;
    }
  }
  if (text.size() > kLongestWhole) {
    fail(
        ErrorKind::data,
        "tokenizer hf: {} bytes of a document have no place where a cut would keep the ids; split the document, or use "
        "another tokenizer",
        text.size());
  }
  if (cutting_ == Cutting::nowhere || !settles_) return 0;
  // A long text is tried again when it has doubled, so that the work does not grow with the square of its length.
  const bool doubled = text.size() <= kNearEnd || std::bit_width(text.size()) != std::bit_width(text.size() - kNearEnd);
  return doubled ? settled_prefix(text) : 0;
}

size_t BpeTokenizer::settled_prefix(std::string_view text) const {
  text.remove_suffix(unfinished_bytes(text));
  // A token that is not complete yet may begin here or behind.
  const size_t limit = text.size() - std::min(text.size(), longest_added_);
  const size_t raw = open_section(raw_tokens_, text, limit);
  const size_t begin = raw + open_section(normalized_tokens_, text.substr(raw), limit - std::min(limit, raw));
  if (limit <= begin) return begin;
  std::string_view open = text.substr(begin, limit - begin);
  open.remove_suffix(unfinished_bytes(open));
  SplitPattern::Matcher matcher;
  return begin + pre_tokenizer_.settled(open, matcher);
}

}  // namespace quire
