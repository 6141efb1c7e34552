#include "data/tasks/key_alphabet.h"

#include <set>

#include "core/check.h"

namespace quire {

namespace {

// Returns the tokens that encode to themselves: no unknown piece, no half of a character.
std::vector<int32_t> all_tokens(const Tokenizer& tokenizer) {
  std::vector<int32_t> ids;
  std::vector<int32_t> again;
  for (int32_t id = 0; id < tokenizer.content_size(); ++id) {
    const std::string text = tokenizer.decode({&id, 1});
    if (text.empty() || text == "|") continue;  // the mark around needles
    again.clear();
    tokenizer.encode(text, again);
    if (again == std::vector<int32_t>{id}) ids.push_back(id);
  }
  return ids;
}

}  // namespace

KeyAlphabet::KeyAlphabet(Alphabet alphabet, const Tokenizer& tokenizer, const std::string& where) {
  if (alphabet == Alphabet::tokens) {
    ids_ = all_tokens(tokenizer);
    if (ids_.size() < 2) {
      fail(ErrorKind::config, "{}: the tokenizer ({}) cannot write the key: {} of its tokens stand for themselves",
           where, tokenizer.kind(), ids_.size());
    }
    return;
  }
  const std::string symbols = alphabet == Alphabet::digits ? "0123456789" : "abcdefghijklmnopqrstuvwxyz";
  for (const char symbol : symbols) {
    const std::string text(1, symbol);
    std::vector<int32_t> ids;
    tokenizer.encode(text, ids);
    if (ids.size() != 1 || tokenizer.decode(ids) != text) {
      fail(ErrorKind::config,
           "{}: the tokenizer ({}) cannot write the key: \"{}\" is no token of its own; use alphabet: tokens", where,
           tokenizer.kind(), text);
    }
    ids_.push_back(ids[0]);
  }
}

bool KeyAlphabet::has(int64_t count, int64_t symbols) const {
  int64_t keys = 1;
  for (int64_t i = 0; i < symbols && keys < count; ++i) keys *= size();
  return keys >= count;
}

std::vector<std::vector<int32_t>> KeyAlphabet::draw(int64_t count, int64_t symbols, TaskRandom& random) const {
  QUIRE_CHECK(has(count, symbols), "key alphabet: {} keys of {} of {} symbols", count, symbols, size());
  std::vector<std::vector<int32_t>> keys;
  std::set<std::vector<int32_t>> drawn;
  while (static_cast<int64_t>(keys.size()) < count) {
    std::vector<int32_t> key;
    for (int64_t i = 0; i < symbols; ++i) key.push_back(random.one_of(ids_));
    if (drawn.insert(key).second) keys.push_back(std::move(key));
  }
  return keys;
}

}  // namespace quire
