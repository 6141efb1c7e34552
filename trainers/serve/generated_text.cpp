#include "trainers/serve/generated_text.h"

#include <algorithm>

#include "data/sources/utf8.h"

namespace quire {

bool GeneratedText::add(std::string_view token) {
  const size_t before = text_.size();
  text_ += token;
  size_t end = std::string::npos;
  for (const std::string& stop : stops_) {
    const size_t from = before - std::min(before, stop.size() - 1);
    end = std::min(end, text_.find(stop, from));
  }
  if (end == std::string::npos) return false;
  text_.resize(end);
  return true;
}

size_t GeneratedText::settled() const {
  size_t open = unfinished_bytes(text_);
  for (const std::string& stop : stops_) {
    size_t length = std::min(stop.size() - 1, text_.size());
    while (length > open && !std::string_view(text_).ends_with(std::string_view(stop).substr(0, length))) --length;
    open = std::max(open, length);
  }
  return text_.size() - open;
}

}  // namespace quire
