// Finds added tokens in text: the leftmost, of several the longest.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "data/tokenizers/bpe_spec.h"

namespace quire {

class AddedTokenFinder {
 public:
  // Looks for `contents`, one for each token; the tokens may be written otherwise, as in normalised text.
  AddedTokenFinder(std::vector<AddedToken> tokens, const std::vector<std::string>& contents);

  // A part of a text: a token, or the text between two of them when id is -1.
  struct Part {
    int32_t id = -1;
    size_t begin = 0;
    size_t end = 0;
  };
  // Appends the parts of a text, in order. Special tokens are text unless `specials`. Nothing is appended for "".
  void split(std::string_view text, bool specials, std::vector<Part>& parts) const;

  bool empty() const { return tokens_.empty(); }

 private:
  struct Match {
    size_t token;
    size_t begin;
    size_t end;
  };
  bool find(std::string_view text, size_t from, Match& match) const;
  int32_t child(int32_t node, uint8_t byte) const;

  struct Edge {
    int32_t node;
    uint8_t byte;
    int32_t child;
  };
  std::vector<AddedToken> tokens_;
  std::vector<Edge> edges_;     // of the trie of contents, sorted by node and byte
  std::vector<int32_t> ends_;   // by node: the token that ends there, or -1
  std::vector<int32_t> first_;  // by byte: the child of the root, or -1
};

}  // namespace quire
