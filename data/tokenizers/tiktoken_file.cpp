#include <algorithm>
#include <array>
#include <charconv>
#include <nlohmann/json.hpp>
#include <unordered_map>

#include "core/check.h"
#include "data/tokenizers/bpe_files.h"
#include "data/tokenizers/bpe_spec.h"
#include "data/tokenizers/byte_letters.h"
#include "data/tokenizers/split_pattern.h"

namespace quire {

namespace {

using TokenRanks = std::unordered_map<std::string_view, int32_t>;

struct RankedMerge {
  int32_t rank;
  int32_t left;
  int32_t right;
  bool operator<(const RankedMerge& other) const {
    return std::tie(rank, left, right) < std::tie(other.rank, other.left, other.right);
  }
};

int base64_digit(char c) {
  if (c >= 'A' && c <= 'Z') return c - 'A';
  if (c >= 'a' && c <= 'z') return c - 'a' + 26;
  if (c >= '0' && c <= '9') return c - '0' + 52;
  return c == '+' ? 62 : c == '/' ? 63 : -1;
}

// Returns an empty text for one that is not base64.
std::string from_base64(std::string_view text) {
  if (text.size() % 4 != 0) return {};
  for (int i = 0; i < 2 && text.ends_with('='); ++i) text.remove_suffix(1);
  std::string bytes;
  uint32_t bits = 0;
  int count = 0;
  for (const char c : text) {
    const int digit = base64_digit(c);
    if (digit < 0) return {};
    bits = bits << 6 | static_cast<uint32_t>(digit);
    count += 6;
    if (count < 8) continue;
    count -= 8;
    bytes += static_cast<char>(bits >> count & 0xFFU);
  }
  return bytes;
}

// Reads the lines into a list by rank.
std::vector<std::string> read_ranks(std::string_view lines) {
  std::vector<std::string> tokens;
  for (size_t number = 1; !lines.empty(); ++number) {
    const size_t end = std::min(lines.find('\n'), lines.size());
    std::string_view line = lines.substr(0, end);
    lines.remove_prefix(std::min(end + 1, lines.size()));
    if (line.ends_with('\r')) line.remove_suffix(1);
    if (line.empty()) continue;
    const size_t space = std::min(line.find(' '), line.size());
    const std::string token = from_base64(line.substr(0, space));
    size_t rank = 0;
    const char* last = line.data() + line.size();
    const auto read = std::from_chars(line.data() + std::min(space + 1, line.size()), last, rank);
    if (token.empty() || token.size() > kLongestToken || read.ec != std::errc() || read.ptr != last) {
      fail(ErrorKind::data, "line {}: \"{}\" is not \"BASE64 RANK\"", number, line);
    }
    if (rank >= kLargestVocabulary || rank > 2 * number + 4096) {
      fail(ErrorKind::data, "line {}: rank {} is too high", number, rank);
    }
    if (rank >= tokens.size()) tokens.resize(rank + 1);
    if (!tokens[rank].empty()) fail(ErrorKind::data, "line {}: rank {} occurs twice", number, rank);
    tokens[rank] = token;
  }
  if (tokens.empty()) fail(ErrorKind::data, "the file has no line \"BASE64 RANK\"");
  return tokens;
}

}  // namespace

// In a word tiktoken joins the pair whose union has the lowest rank. The merges that do the same are all cuts of each
// token into two tokens, by the rank of the token.
std::string json_of_ranks(std::string_view lines) {
  const std::vector<std::string> tokens = read_ranks(lines);
  TokenRanks ranks;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    if (tokens[rank].empty()) continue;
    if (!ranks.emplace(tokens[rank], static_cast<int32_t>(rank)).second) {
      fail(ErrorKind::data, "the token of rank {} occurs twice", rank);
    }
  }
  std::vector<RankedMerge> merges;
  std::string vocab;
  for (size_t rank = 0; rank < tokens.size(); ++rank) {
    const std::string_view token = tokens[rank];
    if (token.empty()) continue;
    for (size_t cut = 1; cut < token.size(); ++cut) {
      const auto left = ranks.find(token.substr(0, cut));
      const auto right = left == ranks.end() ? left : ranks.find(token.substr(cut));
      if (right == ranks.end()) continue;
      merges.push_back({static_cast<int32_t>(rank), left->second, right->second});
    }
    vocab += fmt::format("{}{}:{}", vocab.empty() ? "" : ",", nlohmann::json(to_byte_letters(token)).dump(), rank);
  }
  std::sort(merges.begin(), merges.end());
  std::string list;
  for (const RankedMerge& merge : merges) {
    const auto letters = [&](int32_t rank) {
      return nlohmann::json(to_byte_letters(tokens[static_cast<size_t>(rank)])).dump();
    };
    list += fmt::format("{}[{},{}]", list.empty() ? "" : ",", letters(merge.left), letters(merge.right));
  }
  const auto next = static_cast<int64_t>(tokens.size());
  return byte_level_json(fmt::format("{{{}}}", vocab), fmt::format("[{}]", list), kLlama3Pattern, true,
                         {{next, "<|begin_of_text|>"}, {next + 1, "<|end_of_text|>"}});
}

}  // namespace quire
