#include "data/tokenizers/word_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace quire {

WordCache::WordCache() : slots_(kSlots) {}

bool WordCache::find(std::string_view word, std::span<const int32_t>& ids) {
  hash_ = XXH3_64bits(word.data(), word.size());
  at_ = hash_ & (kSlots - 1);
  while (slots_[at_].bytes != 0) {
    const Slot& slot = slots_[at_];
    if (slot.hash == hash_ && slot.bytes == word.size() &&
        std::memcmp(texts_.data() + slot.text, word.data(), word.size()) == 0) {
      ids = {ids_.data() + slot.ids, slot.count};
      return true;
    }
    at_ = (at_ + 1) & (kSlots - 1);
  }
  return false;
}

void WordCache::put(std::string_view word, std::span<const int32_t> ids) {
  if (2 * ++words_ > kSlots) {
    std::fill(slots_.begin(), slots_.end(), Slot{});
    texts_.clear();
    ids_.clear();
    words_ = 1;
    at_ = hash_ & (kSlots - 1);
  }
  slots_[at_] = {hash_, static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(ids_.size()),
                 static_cast<uint16_t>(word.size()), static_cast<uint16_t>(ids.size())};
  texts_ += word;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

}  // namespace quire
