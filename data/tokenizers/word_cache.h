// Remembers the ids of words: a text has few different ones.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class WordCache {
 public:
  static constexpr size_t kLongestWord = 64;  // bytes; longer words are not kept

  WordCache();
  // Finds the ids of a word. The result is valid until the next put().
  bool find(std::string_view word, std::span<const int32_t>& ids);
  // Keeps the ids of the word that find() did not find last. A cache that is full is emptied.
  void put(std::string_view word, std::span<const int32_t> ids);

 private:
  struct Slot {
    uint64_t hash = 0;
    uint32_t text = 0;  // where it begins in texts_
    uint32_t ids = 0;   // where they begin in ids_
    uint16_t bytes = 0;
    uint16_t count = 0;
  };
  static constexpr size_t kFirstSlots = size_t{1} << 10;
  static constexpr size_t kMaxSlots = size_t{1} << 17;

  void make_room();
  void take_slot(uint64_t hash);

  std::vector<Slot> slots_;  // a power of two
  std::string texts_;
  std::vector<int32_t> ids_;
  uint64_t hash_ = 0;  // of the word that was looked for last
  size_t at_ = 0;      // its slot
  size_t words_ = 0;
};

}  // namespace quire
