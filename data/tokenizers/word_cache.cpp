#include "data/tokenizers/word_cache.h"

#include <xxhash.h>

#include <algorithm>
#include <cstring>

namespace quire {

WordCache::WordCache() : slots_(kFirstSlots) {}

bool WordCache::find(std::string_view word, std::span<const int32_t>& ids) {
  hash_ = XXH3_64bits(word.data(), word.size());
  at_ = hash_ & (slots_.size() - 1);
  while (slots_[at_].bytes != 0) {
    const Slot& slot = slots_[at_];
    if (slot.hash == hash_ && slot.bytes == word.size() &&
        std::memcmp(texts_.data() + slot.text, word.data(), word.size()) == 0) {
      ids = {ids_.data() + slot.ids, slot.count};
      return true;
    }
    at_ = (at_ + 1) & (slots_.size() - 1);
  }
  return false;
}

void WordCache::take_slot(uint64_t hash) {
  at_ = hash & (slots_.size() - 1);
  while (slots_[at_].bytes != 0) at_ = (at_ + 1) & (slots_.size() - 1);
}

void WordCache::make_room() {
  std::vector<Slot> before(std::min(2 * slots_.size(), kMaxSlots));
  before.swap(slots_);
  if (before.size() == kMaxSlots) {
    texts_.clear();
    ids_.clear();
    words_ = 0;
    return;
  }
  for (const Slot& slot : before) {
    if (slot.bytes == 0) continue;
    take_slot(slot.hash);
    slots_[at_] = slot;
  }
}

void WordCache::put(std::string_view word, std::span<const int32_t> ids) {
  if (2 * words_ >= slots_.size()) {
    make_room();
    take_slot(hash_);
  }
  ++words_;
  slots_[at_] = {hash_, static_cast<uint32_t>(texts_.size()), static_cast<uint32_t>(ids_.size()),
                 static_cast<uint16_t>(word.size()), static_cast<uint16_t>(ids.size())};
  texts_ += word;
  ids_.insert(ids_.end(), ids.begin(), ids.end());
}

}  // namespace quire
