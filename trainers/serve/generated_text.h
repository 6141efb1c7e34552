// Holds the text of a continuation as it grows, ends it before a stop string, and says how much of it can be sent.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire {

class GeneratedText {
 public:
  explicit GeneratedText(std::vector<std::string> stops) : stops_(std::move(stops)) {}

  // Appends the text of a token. Returns true when the text now holds a stop string; it is cut in front of it.
  bool add(std::string_view token);
  const std::string& text() const { return text_; }
  // Returns how many bytes are final: neither part of an unfinished character nor possibly of a stop string.
  size_t settled() const;

 private:
  std::vector<std::string> stops_;
  std::string text_;
};

}  // namespace quire
