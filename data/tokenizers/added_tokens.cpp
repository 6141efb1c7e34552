#include "data/tokenizers/added_tokens.h"

#include <algorithm>
#include <map>
#include <tuple>

#include "data/tokenizers/characters.h"

namespace quire {

namespace {

size_t before_spaces(std::string_view text, size_t end, size_t limit) {
  while (end > limit) {
    const size_t begin = character_before(text, end);
    if (begin < limit || !is_space_character(character_at(text, begin))) break;
    end = begin;
  }
  return end;
}

size_t behind_spaces(std::string_view text, size_t begin) {
  while (begin < text.size() && is_space_character(character_at(text, begin))) {
    const auto lead = static_cast<uint8_t>(text[begin]);
    begin += lead < 0x80 ? 1 : lead < 0xE0 ? 2 : lead < 0xF0 ? 3 : 4;
  }
  return begin;
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_word_character(character_at(text, character_before(text, begin)))) return false;
  return end == text.size() || !is_word_character(character_at(text, end));
}

}  // namespace

AddedTokenFinder::AddedTokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& contents)
    : tokens_(std::move(tokens)), ends_{-1} {
  std::map<std::pair<int32_t, uint8_t>, int32_t> edges;
  for (size_t token = 0; token < tokens_.size(); ++token) {
    int32_t node = 0;
    for (const char c : contents[token]) {
      const auto [edge, is_new] =
          edges.emplace(std::pair(node, static_cast<uint8_t>(c)), static_cast<int32_t>(ends_.size()));
      if (is_new) ends_.push_back(-1);
      node = edge->second;
    }
    if (node > 0) ends_[static_cast<size_t>(node)] = static_cast<int32_t>(token);
  }
  first_.assign(256, -1);
  for (const auto& [from, to] : edges) {
    edges_.push_back({from.first, from.second, to});
    if (from.first == 0) first_[from.second] = to;
  }
}

int32_t AddedTokenFinder::child(int32_t node, uint8_t byte) const {
  const auto at = std::lower_bound(edges_.begin(), edges_.end(), std::pair(node, byte),
                                   [](const Edge& edge, const std::pair<int32_t, uint8_t>& key) {
                                     return std::tie(edge.node, edge.byte) < std::tie(key.first, key.second);
                                   });
  return at != edges_.end() && at->node == node && at->byte == byte ? at->child : -1;
}

bool AddedTokenFinder::find(std::string_view text, size_t from, Match& match) const {
  for (size_t begin = from; begin < text.size(); ++begin) {
    int32_t node = first_[static_cast<uint8_t>(text[begin])];
    if (node < 0) continue;
    int32_t found = -1;
    for (size_t at = begin + 1; node >= 0; ++at) {
      if (ends_[static_cast<size_t>(node)] >= 0) {
        found = ends_[static_cast<size_t>(node)];
        match = {static_cast<size_t>(found), begin, at};
      }
      node = at < text.size() ? child(node, static_cast<uint8_t>(text[at])) : -1;
    }
    if (found >= 0) return true;
  }
  return false;
}

// Follows AddedVocabulary::find_matches of the package `tokenizers`, where a special token that is text still hides
// tokens that begin inside it.
void AddedTokenFinder::split(std::string_view text, bool specials, std::vector<Part>& parts) const {
  size_t done = 0;
  if (!tokens_.empty()) {
    Match match{};
    for (size_t from = 0; find(text, from, match); from = match.end) {
      const AddedToken& token = tokens_[match.token];
      if (token.special && !specials) continue;
      if (token.single_word && !stands_alone(text, match.begin, match.end)) continue;
      size_t begin = match.begin;
      size_t end = match.end;
      if (token.lstrip) begin = before_spaces(text, begin, std::min(done, begin));
      if (token.rstrip) end = behind_spaces(text, end);
      if (done < begin) parts.push_back({-1, done, begin});
      parts.push_back({token.id, begin, end});
      done = end;
    }
  }
  if (done < text.size()) parts.push_back({-1, done, text.size()});
}

}  // namespace quire
