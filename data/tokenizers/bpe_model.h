// Byte-pair encoding of one word: the pair of neighbours with the lowest rank is joined, the leftmost among equals,
// until no pair has a rank (Sennrich et al. 2016). A word of n symbols takes n log n steps.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "data/tokenizers/bpe_spec.h"

namespace quire {

// Merges by pair, in one flat table with open addressing.
class MergeTable {
 public:
  struct Entry {
    uint64_t pair = kNoPair;
    uint32_t rank = 0;
    int32_t result = 0;
  };
  explicit MergeTable(const std::vector<BpeMerge>& merges);
  // Returns nullptr when the two have no merge.
  const Entry* find(int32_t left, int32_t right) const;

 private:
  static constexpr uint64_t kNoPair = ~uint64_t{0};
  std::vector<Entry> entries_;
  uint64_t mask_ = 0;
};

class BpeModel {
 public:
  // No text becomes `bos` or `eos` by being equal to one of them. The spec must outlive this.
  BpeModel(const BpeSpec& spec, int32_t bos, int32_t eos);
  BpeModel(const BpeModel&) = delete;
  BpeModel& operator=(const BpeModel&) = delete;

  // Holds memory that one thread uses while it encodes.
  struct Scratch {
    std::vector<int32_t> symbols;
    std::vector<uint32_t> ranks;  // of a symbol and the next one
    std::vector<int32_t> next;    // index of the symbol behind, in a long word
    std::vector<int32_t> previous;
    std::vector<uint64_t> heap;  // rank and index, smallest first
  };
  // Appends the ids of a word. `is_valid` tells that it is UTF-8; else each byte that is no part of a character becomes
  // an id of its own.
  void encode_word(std::string_view word, bool is_valid, Scratch& scratch, std::vector<int32_t>& ids) const;
  // Appends the id of a byte that is no part of a character.
  void encode_bad_byte(uint8_t byte, std::vector<int32_t>& ids) const;

  // Returns the id of a byte, or -1.
  int32_t byte_id(uint8_t byte) const { return byte_ids_[byte]; }

  // Returns true when no merge reaches from another character over the mark behind it, so that a text can be cut there.
  bool mark_begins_words(std::string_view mark) const;
  // Returns true when every byte, or character, has ids of its own.
  bool writes_every_byte() const;

 private:
  void encode_valid(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const;
  void first_symbols(std::string_view word, std::vector<int32_t>& symbols) const;
  void character_symbols(std::string_view word, std::vector<int32_t>& symbols) const;
  void merge_short(Scratch& scratch) const;
  void merge_long(Scratch& scratch) const;
  uint32_t rank_of(int32_t left, int32_t right) const;

  const BpeSpec& spec_;
  std::vector<std::string> texts_;                     // what tokens stand for in a word, by id
  std::unordered_map<std::string_view, int32_t> ids_;  // by text
  std::array<int32_t, 256> byte_ids_{};                // byte level: of the byte; else of its fallback; or -1
  std::array<int32_t, 128> ascii_ids_{};
  MergeTable merges_;
};

}  // namespace quire
