#include "tests/support/ptx/text.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <sstream>

namespace quire::ptx {

namespace {

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

}  // namespace

std::string trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return std::string(text);
}

std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t n = 0; n <= text.size(); ++n) {
    if (n == text.size() || (text[n] == ',' && depth == 0)) {
      std::string part = trimmed(text.substr(begin, n - begin));
      if (!part.empty()) parts.push_back(std::move(part));
      begin = n + 1;
    } else if (std::strchr("{[(", text[n]) != nullptr) {
      ++depth;
    } else if (std::strchr("}])", text[n]) != nullptr) {
      --depth;
    }
  }
  return parts;
}

int bytes_of_type(const std::string& type) {
  if (type == "pred") return 0;
  if (type.find("64") != std::string::npos) return 8;
  if (type.find("32") != std::string::npos || type == "bf16x2") return 4;
  if (type.find("16") != std::string::npos) return 2;
  return 1;
}

std::vector<std::string> split_name(const std::string& name) {
  std::vector<std::string> parts;
  std::istringstream in(name);
  for (std::string part; std::getline(in, part, '.');) parts.push_back(part);
  return parts;
}

size_t round_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

size_t place_of_array(size_t bytes, size_t alignment) {
  const size_t place = round_up(bytes, alignment);
  return place % (2 * alignment) == 0 ? place + alignment : place;
}

Declaration::Declaration(std::string_view text) {
  for (const std::string& word : words_of(text)) {
    if (word == ".align") continue;
    if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) {
      alignment = std::stoul(word);
    } else if (word[0] == '.') {
      element = static_cast<size_t>(std::max(1, bytes_of_type(word.substr(1))));
    } else {
      const size_t bracket = word.find('[');
      name = word.substr(0, bracket);
      size_t count = 1;
      if (bracket != std::string::npos) count = word[bracket + 1] == ']' ? 0 : std::stoul(word.substr(bracket + 1));
      bytes = count * element;
      break;
    }
  }
  alignment = std::max(alignment, element);
}

}  // namespace quire::ptx
