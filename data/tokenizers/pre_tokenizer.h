// Cuts text into the words that a BPE model encodes, step by step as a tokenizer file says.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/bpe_spec.h"
#include "data/tokenizers/split_pattern.h"
#include "data/tokenizers/unicode_stand_ins.h"

namespace quire {

class PreTokenizer {
 public:
  // Receives the words in order.
  class Words {
   public:
    virtual ~Words() = default;
    // A word that is not valid holds bytes that are no part of a character.
    virtual void add(std::string_view word, bool is_valid) = 0;
  };

  // Throws Error(data) for a pattern that quire cannot use.
  explicit PreTokenizer(std::vector<PreTokenizerStep> steps);

  // Cuts one piece of a text. `begins` tells that the text begins with it.
  void cut(std::string_view text, bool begins, SplitPattern::Matcher& matcher, Words& words) const;

  // Cuts of a text that arrives in parts.
  enum class Cutting {
    nowhere,        // a word may begin anywhere
    at_spaces,      // a word begins at each space behind another character, unless that is U+2581
    between_lines,  // also between a newline behind a character that is no space, and a letter or digit
    where_settled,  // behind settled()
  };
  Cutting cutting() const { return cutting_; }
  // Returns the last position at which a word begins or ends, whatever follows the text; 0 when there is none. Any
  // cutting but at_spaces and nowhere allows it.
  size_t settled(std::string_view text, SplitPattern::Matcher& matcher) const;

  // Describes how the steps alter text, for messages; empty when they do not.
  const std::string& alterations() const { return alterations_; }

 private:
  struct Piece {
    std::string_view text;
    std::string_view subject;  // for patterns
    bool is_valid = true;
    bool begins = false;
  };
  struct Run {
    SplitPattern::Matcher& matcher;
    Words& words;
  };
  void run(size_t step, const Piece& piece, const Run& run_of) const;
  void split(size_t step, const Piece& piece, const Run& run_of) const;
  void byte_level(size_t step, const Piece& piece, const Run& run_of) const;
  void metaspace(size_t step, const Piece& piece, const Run& run_of) const;
  void isolate(size_t step, const Piece& piece, const Run& run_of) const;
  size_t settled_from(size_t step, std::string_view subject, SplitPattern::Matcher& matcher) const;
  Cutting find_cutting() const;

  std::vector<PreTokenizerStep> steps_;
  std::vector<std::unique_ptr<SplitPattern>> patterns_;  // by step; nullptr for a step without one
  Cutting cutting_ = Cutting::nowhere;
  std::string alterations_;
};

}  // namespace quire
