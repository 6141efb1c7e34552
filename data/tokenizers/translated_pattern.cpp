#include <cctype>
#include <vector>

#include "core/check.h"
#include "data/tokenizers/split_pattern.h"

namespace quire {

namespace {

// The characters of Oniguruma's \w: alphabetic ones, marks, decimal digits, connectors, and six digits of Latin-1.
constexpr const char* kWordCharacters =
    R"(\p{L}\p{M}\p{Nl}\p{Nd}\p{Pc}\x{B2}\x{B3}\x{B9}\x{BC}-\x{BE}\x{24B6}-\x{24E9}\x{1F130}-\x{1F149}\x{1F150}-\x{1F169}\x{1F170}-\x{1F189})";

class PatternTranslation {
 public:
  explicit PatternTranslation(const std::string& pattern) : pattern_(pattern) {}

  std::string run() {
    while (at_ < pattern_.size()) step();
    return std::move(out_);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    fail(ErrorKind::data, "pattern \"{}\": {} is unknown to quire", pattern_, what);
  }
  bool ahead(std::string_view text) const { return pattern_.compare(at_, text.size(), text) == 0; }
  void copy(size_t count) {
    out_.append(pattern_, at_, count);
    at_ += count;
  }

  void step() {
    switch (pattern_[at_]) {
      case '\\':
        atom_ = out_.size();
        return escape(false);
      case '[':
        atom_ = out_.size();
        return character_class();
      case '(':
        return open_group();
      case ')':
        if (!groups_.empty()) {
          atom_ = groups_.back();
          groups_.pop_back();
        }
        return copy(1);
      case '{':
        return interval();
      case '*':
      case '+':
      case '?':
        return copy(1);
      default:
        atom_ = out_.size();
        copy(1);
        while (at_ < pattern_.size() && (static_cast<uint8_t>(pattern_[at_]) & 0xC0U) == 0x80U) copy(1);
    }
  }

  void open_group() {
    if (at_ == 0 && ahead("(?i)")) return copy(4);  // elsewhere it reaches over alternatives, unlike in PCRE2
    groups_.push_back(out_.size());
    if (ahead("(*")) refuse("\"(*\"");
    if (!ahead("(?")) return copy(1);
    for (const char* known : {"(?:", "(?=", "(?!", "(?>", "(?<=", "(?<!", "(?i:", "(?-i:"}) {
      if (!ahead(known)) continue;
      return copy(std::string_view(known).size());
    }
    refuse("\"" + pattern_.substr(at_, 4) + "\"");
  }

  // "{n}", "{n,}", "{n,m}" and "{,m}"; a brace that begins none of them is a character.
  void interval() {
    size_t end = at_ + 1;
    const auto digits = [&] {
      const size_t begin = end;
      while (end < pattern_.size() && std::isdigit(static_cast<uint8_t>(pattern_[end])) != 0) ++end;
      return pattern_.substr(begin, end - begin);
    };
    std::string low = digits();
    std::string high = low;
    const bool comma = end < pattern_.size() && pattern_[end] == ',';
    if (comma) {
      ++end;
      high = digits();
    }
    if (end >= pattern_.size() || pattern_[end] != '}' || (low.empty() && high.empty())) {
      atom_ = out_.size();
      out_ += "\\{";
      ++at_;
      return;
    }
    if (low.empty()) low = "0";
    out_ += comma ? "{" + low + "," + high + "}" : "{" + low + "}";
    at_ = end + 1;
    if (ahead("?") && !comma) refuse("\"?\" behind \"{n}\"");
    if (!ahead("+")) return;
    // It repeats the whole interval there, and is not possessive as in PCRE2.
    out_.insert(atom_, "(?:");
    out_ += ")+";
    ++at_;
    if (ahead("+") || ahead("?")) refuse("a third quantifier");
  }

  void escape(bool in_class) {
    if (at_ + 1 >= pattern_.size()) refuse("a backslash at the end");
    const char letter = pattern_[at_ + 1];
    if (std::isalnum(static_cast<uint8_t>(letter)) == 0) {
      copy(2);
      while (at_ < pattern_.size() && (static_cast<uint8_t>(pattern_[at_]) & 0xC0U) == 0x80U) copy(1);
      return;
    }
    const std::string word(kWordCharacters);
    switch (letter) {
      case 's':
      case 'S':
      case 'd':
      case 'D':
      case 'r':
      case 'n':
      case 't':
      case 'f':
        return copy(2);
      case 'A':
      case 'z':
      case 'Z':
      case 'R':
      case 'X':
        if (in_class) break;
        return copy(2);
      case 'p':
      case 'P':
        return property();
      case 'w':
        return replace(2, in_class ? word : "[" + word + "]");
      case 'W':
        if (in_class) break;
        return replace(2, "[^" + word + "]");
      case 'h':
        return replace(2, in_class ? "0-9A-Fa-f" : "[0-9A-Fa-f]");
      case 'b':
        if (in_class) break;
        return replace(2, "(?:(?<=[" + word + "])(?![" + word + "])|(?<![" + word + "])(?=[" + word + "]))");
      case 'u':
      case 'x':
        return code_point();
      default:
        break;
    }
    refuse(std::string("\"\\") + letter + (in_class ? "\" in a class" : "\""));
  }

  void replace(size_t count, const std::string& text) {
    out_ += text;
    at_ += count;
  }

  // A name of one or two letters is a general category. Others are scripts: of PCRE2's two kinds, the one without
  // extensions.
  void property() {
    const bool negative = pattern_[at_ + 1] == 'P';
    const size_t end = pattern_.find('}', at_);
    if (at_ + 2 >= pattern_.size() || pattern_[at_ + 2] != '{' || end == std::string::npos)
      refuse("\"\\p\" without a name");
    std::string name = pattern_.substr(at_ + 3, end - at_ - 3);
    const bool hat = name.starts_with('^');
    if (hat) name.erase(0, 1);
    for (const char c : name) {
      if (std::isalpha(static_cast<uint8_t>(c)) == 0 && c != '_') refuse("property \"" + name + "\"");
    }
    if (name.size() > 2) name = "sc:" + name;
    replace(end + 1 - at_, std::string(negative != hat ? "\\P{" : "\\p{") + name + "}");
  }

  // \uHHHH, \x{H...} and \xHH below 128.
  void code_point() {
    size_t begin = at_ + 2;
    size_t count = pattern_[at_ + 1] == 'u' ? 4 : 2;
    const bool braces = pattern_[at_ + 1] == 'x' && begin < pattern_.size() && pattern_[begin] == '{';
    if (braces) {
      ++begin;
      const size_t end = pattern_.find('}', begin);
      count = end == std::string::npos ? 0 : end - begin;
    }
    const std::string digits = begin < pattern_.size() ? pattern_.substr(begin, count) : "";
    bool good = digits.size() == count && count > 0 && count <= 8;
    for (const char c : digits) good = good && std::isxdigit(static_cast<uint8_t>(c)) != 0;
    if (!good) refuse("the code \"" + digits + "\"");
    if (count == 2 && !braces && std::stoul(digits, nullptr, 16) > 127) refuse("a byte above 127");
    replace(begin + count + (braces ? 1 : 0) - at_, "\\x{" + digits + "}");
  }

  void character_class() {
    copy(1);
    if (ahead("^")) copy(1);
    if (ahead("]")) refuse("\"]\" at the beginning of a class");
    while (!ahead("]")) {
      if (at_ >= pattern_.size()) refuse("a class without an end");
      if (ahead("&&")) refuse("\"&&\" in a class");
      if (ahead("[:space:]")) {
        replace(9, "\\s");
      } else if (ahead("[:digit:]")) {
        replace(9, "\\d");
      } else if (ahead("[")) {
        refuse("a class in a class");
      } else if (ahead("\\")) {
        escape(true);
      } else {
        copy(1);
      }
    }
    copy(1);
  }

  const std::string& pattern_;
  std::string out_;
  std::vector<size_t> groups_;  // where the open groups begin in `out_`
  size_t at_ = 0;
  size_t atom_ = 0;  // where the last thing that can be repeated begins in `out_`
};

}  // namespace

std::string translated_pattern(const std::string& pattern) {
  return PatternTranslation(pattern).run();
}

}  // namespace quire
