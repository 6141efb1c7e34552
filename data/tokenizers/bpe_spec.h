// A BPE tokenizer of another program as data.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire {

// A token that is looked for in the text before anything else.
struct AddedToken {
  int32_t id = 0;
  std::string content;
  bool special = false;      // in documents it is ordinary text
  bool single_word = false;  // found only where no letter, digit or mark is beside it
  bool lstrip = false;       // swallows whitespace in front of it
  bool rstrip = false;       // swallows whitespace behind it
  bool normalized = false;   // looked for in normalised text
};

struct NormalizerStep {
  enum class Kind : uint8_t { nfc, nfd, prepend, replace };
  Kind kind = Kind::nfc;
  std::string from;  // replace: the text to look for
  std::string to;    // prepend, replace
};

// Says whether the matches of a split are pieces of their own, or join the piece before or behind them.
enum class SplitBehavior : uint8_t { isolated, removed, merged_with_previous, merged_with_next, contiguous };

struct PreTokenizerStep {
  enum class Kind : uint8_t { split, digits, byte_level, metaspace };
  enum class Prepend : uint8_t { never, first, always };
  Kind kind = Kind::split;
  std::string pattern;  // split; byte_level: GPT-2's, or empty
  SplitBehavior behavior = SplitBehavior::isolated;
  bool invert = false;               // split: the parts between the matches are the matches
  bool individual = false;           // digits: each digit is a piece
  Prepend prepend = Prepend::never;  // byte_level: a space; metaspace: the mark
  std::string mark;                  // metaspace: stands for a space
  bool splits = false;               // metaspace: a piece begins at each mark
};

struct BpeMerge {
  int32_t left = 0;
  int32_t right = 0;
  int32_t result = 0;
};

struct BpeSpec {
  std::vector<std::string> tokens;  // of the model, by id, as the file writes them; empty where there is none
  std::vector<BpeMerge> merges;     // by rank
  std::vector<AddedToken> added;
  std::vector<NormalizerStep> normalizer;
  std::vector<PreTokenizerStep> pre_tokenizer;
  bool byte_level = false;  // texts of tokens are byte letters (byte_letters.h)
  bool ignore_merges = false;
  bool byte_fallback = false;
  bool fuse_unknown = false;
  int32_t unknown = -1;            // id of the unknown token, -1 without one
  std::string mark;                // the decoder writes a space for it; empty: for nothing
  int64_t stripped_spaces = 0;     // the decoder removes so many spaces at the beginning
  bool drops_first_marks = false;  // the decoder writes nothing for the marks of the first token
  int64_t vocabulary = 0;          // the highest id plus one
};

inline constexpr int64_t kLargestTokenizerFile = int64_t{1} << 28;  // bytes
inline constexpr size_t kLargestVocabulary = size_t{1} << 22;
inline constexpr size_t kLongestToken = 4096;  // bytes

}  // namespace quire
