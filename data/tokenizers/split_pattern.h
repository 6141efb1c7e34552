// Regular expressions that cut text into words. Those of tokenizer files are written for Oniguruma; PCRE2 runs them,
// compiled to machine code. Where the two differ, the pattern is rewritten (translated_pattern.cpp) or refused, and the
// text is one with stand-ins for newer characters (unicode_stand_ins.h).
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace quire {

inline constexpr const char* kGpt2Pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";
inline constexpr const char* kLlama3Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* kQwen2Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";
inline constexpr const char* kQwen35Pattern =
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+)";

inline constexpr size_t kLongestPattern = 16384;  // bytes

// Returns the pattern that makes PCRE2 match what Oniguruma, in Ruby's syntax, matches with the given one. Throws
// Error(data) for a construct that quire does not know.
std::string translated_pattern(const std::string& pattern);

class SplitPattern {
 public:
  // Throws Error(data) that quotes the pattern and says what is wrong with it.
  explicit SplitPattern(const std::string& pattern);
  ~SplitPattern();
  SplitPattern(SplitPattern&&) noexcept;

  // Holds memory that one thread uses for matching.
  class Matcher {
   public:
    Matcher();
    ~Matcher();
    Matcher(Matcher&&) noexcept;

   private:
    friend class SplitPattern;
    struct State;
    std::unique_ptr<State> state_;
  };

  enum class Found { match, nothing, partial };
  struct Range {
    size_t begin = 0;
    size_t end = 0;
  };
  // Finds the first match at or behind byte `from` of the text, which is valid UTF-8. With `may_go_on`, more text may
  // follow: the result is `partial` where it might change a match. Throws Error(data) when matching takes too long.
  Found find(std::string_view text, size_t from, bool may_go_on, Matcher& matcher, Range& match) const;
  // Returns true when a match depends on text before it.
  bool looks_back() const;
  // Returns true for the patterns above: their matches never contain a space behind a character that is none, nor a
  // letter or digit behind a newline.
  bool is_well_known() const { return well_known_; }

 private:
  struct Code;
  std::unique_ptr<Code> code_;
  std::string pattern_;
  bool well_known_ = false;
};

}  // namespace quire
