#include "data/tokenizers/bpe_model.h"

#include <utf8.h>

#include <algorithm>
#include <bit>
#include <functional>

#include "core/check.h"
#include "data/tokenizers/byte_letters.h"

namespace quire {

namespace {

constexpr uint32_t kNoRank = UINT32_MAX;
// Up to this many symbols the search for the lowest rank goes through all of them.
constexpr size_t kShortWord = 48;

uint64_t pair_key(int32_t left, int32_t right) {
  return uint64_t{static_cast<uint32_t>(left)} << 32 | static_cast<uint32_t>(right);
}

uint64_t pair_hash(uint64_t pair) {
  const uint64_t mixed = pair * 0x9E3779B97F4A7C15U;
  return mixed ^ mixed >> 29;
}

}  // namespace

MergeTable::MergeTable(const std::vector<BpeMerge>& merges)
    : entries_(std::bit_ceil(2 * merges.size() + 2)), mask_(entries_.size() - 1) {
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const uint64_t pair = pair_key(merges[rank].left, merges[rank].right);
    uint64_t at = pair_hash(pair) & mask_;
    while (entries_[at].pair != kNoPair && entries_[at].pair != pair) at = (at + 1) & mask_;
    entries_[at] = {pair, static_cast<uint32_t>(rank), merges[rank].result};  // of a pair that is twice the last counts
  }
}

const MergeTable::Entry* MergeTable::find(int32_t left, int32_t right) const {
  const uint64_t pair = pair_key(left, right);
  uint64_t at = pair_hash(pair) & mask_;
  while (entries_[at].pair != pair) {
    if (entries_[at].pair == kNoPair) return nullptr;
    at = (at + 1) & mask_;
  }
  return &entries_[at];
}

BpeModel::BpeModel(const BpeSpec& spec, int32_t bos, int32_t eos) : spec_(spec), merges_(spec.merges) {
  byte_ids_.fill(-1);
  ascii_ids_.fill(-1);
  texts_.resize(spec.tokens.size());
  ids_.reserve(spec.tokens.size());
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    std::string text = spec.tokens[id];
    // A token with other characters than byte letters is in no word.
    if (spec.byte_level) text = from_byte_letters(text).value_or("");
    texts_[id] = std::move(text);
    const bool is_end = static_cast<int32_t>(id) == bos || static_cast<int32_t>(id) == eos;
    if (!texts_[id].empty() && !is_end) ids_.emplace(texts_[id], static_cast<int32_t>(id));
  }
  for (uint32_t byte = 0; byte < 256; ++byte) {
    const std::string text =
        spec.byte_level ? std::string(1, static_cast<char>(byte)) : fmt::format("<0x{:02X}>", byte);
    const auto found = ids_.find(text);
    if (found != ids_.end() && (spec.byte_level || spec.byte_fallback)) byte_ids_[byte] = found->second;
    const auto ascii = byte < 128 ? ids_.find(std::string(1, static_cast<char>(byte))) : ids_.end();
    if (ascii != ids_.end()) ascii_ids_[byte] = ascii->second;
  }
}

bool BpeModel::mark_begins_words(std::string_view mark) const {
  if (mark.empty() || !ids_.contains(mark)) return false;
  for (const BpeMerge& merge : spec_.merges) {
    std::string_view text = texts_[static_cast<size_t>(merge.result)];
    while (text.starts_with(mark)) text.remove_prefix(mark.size());
    if (text.find(mark) != std::string_view::npos) return false;
  }
  return true;
}

bool BpeModel::writes_every_byte() const {
  return std::find(byte_ids_.begin(), byte_ids_.end(), -1) == byte_ids_.end();
}

void BpeModel::encode_word(std::string_view word, bool is_valid, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (is_valid) return encode_valid(word, scratch, ids);
  while (!word.empty()) {
    const auto* invalid = utf8::find_invalid(word.data(), word.data() + word.size());
    const auto count = static_cast<size_t>(invalid - word.data());
    if (count > 0) encode_valid(word.substr(0, count), scratch, ids);
    word.remove_prefix(count);
    if (word.empty()) return;
    encode_bad_byte(static_cast<uint8_t>(word.front()), ids);
    word.remove_prefix(1);
  }
}

void BpeModel::encode_bad_byte(uint8_t byte, std::vector<int32_t>& ids) const {
  const int32_t id = byte_ids_[byte] >= 0 ? byte_ids_[byte] : spec_.unknown;
  if (id >= 0) ids.push_back(id);
}

void BpeModel::encode_valid(std::string_view word, Scratch& scratch, std::vector<int32_t>& ids) const {
  if (spec_.ignore_merges) {
    const auto found = ids_.find(word);
    if (found != ids_.end()) return ids.push_back(found->second);
  }
  scratch.symbols.clear();
  first_symbols(word, scratch.symbols);
  if (scratch.symbols.size() > kShortWord) {
    merge_long(scratch);
  } else if (scratch.symbols.size() > 1) {
    merge_short(scratch);
  }
  ids.insert(ids.end(), scratch.symbols.begin(), scratch.symbols.end());
}

void BpeModel::first_symbols(std::string_view word, std::vector<int32_t>& symbols) const {
  if (!spec_.byte_level) return character_symbols(word, symbols);
  for (const char c : word) {
    const int32_t id = byte_ids_[static_cast<uint8_t>(c)];
    if (id >= 0) {
      symbols.push_back(id);
    } else if (spec_.unknown >= 0 && (!spec_.fuse_unknown || symbols.empty() || symbols.back() != spec_.unknown)) {
      symbols.push_back(spec_.unknown);
    }
  }
}

// A character without an id is its bytes, where all of them have ids, else unknown. Neighbours that are unknown may
// become one. Bytes come before an unknown token that is still waiting, as in the package `tokenizers`.
void BpeModel::character_symbols(std::string_view word, std::vector<int32_t>& symbols) const {
  bool waiting = false;
  const char* at = word.data();
  const char* end = word.data() + word.size();
  while (at != end) {
    const char* begin = at;
    utf8::unchecked::next(at);
    const std::string_view character(begin, static_cast<size_t>(at - begin));
    int32_t id = -1;
    if (character.size() == 1) {
      id = ascii_ids_[static_cast<uint8_t>(*begin)];
    } else if (const auto found = ids_.find(character); found != ids_.end()) {
      id = found->second;
    }
    if (id >= 0) {
      if (waiting) symbols.push_back(spec_.unknown);
      waiting = false;
      symbols.push_back(id);
      continue;
    }
    const auto has_id = [&](char c) { return byte_ids_[static_cast<uint8_t>(c)] >= 0; };
    if (std::all_of(character.begin(), character.end(), has_id)) {
      for (const char c : character) symbols.push_back(byte_ids_[static_cast<uint8_t>(c)]);
    } else if (spec_.unknown >= 0) {
      if (waiting && !spec_.fuse_unknown) symbols.push_back(spec_.unknown);
      waiting = true;
    }
  }
  if (waiting) symbols.push_back(spec_.unknown);
}

uint32_t BpeModel::rank_of(int32_t left, int32_t right) const {
  const MergeTable::Entry* merge = merges_.find(left, right);
  return merge == nullptr ? kNoRank : merge->rank;
}

void BpeModel::merge_short(Scratch& scratch) const {
  std::vector<int32_t>& symbols = scratch.symbols;
  std::vector<uint32_t>& ranks = scratch.ranks;
  ranks.resize(symbols.size());
  for (size_t i = 0; i + 1 < symbols.size(); ++i) ranks[i] = rank_of(symbols[i], symbols[i + 1]);
  ranks.back() = kNoRank;
  while (true) {
    const auto lowest = std::min_element(ranks.begin(), ranks.end());
    if (*lowest == kNoRank) return;
    const auto at = static_cast<size_t>(lowest - ranks.begin());
    symbols[at] = merges_.find(symbols[at], symbols[at + 1])->result;
    symbols.erase(symbols.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    ranks.erase(ranks.begin() + static_cast<std::ptrdiff_t>(at) + 1);
    ranks[at] = at + 1 < symbols.size() ? rank_of(symbols[at], symbols[at + 1]) : kNoRank;
    if (at > 0) ranks[at - 1] = rank_of(symbols[at - 1], symbols[at]);
  }
}

void BpeModel::merge_long(Scratch& scratch) const {
  std::vector<int32_t>& symbols = scratch.symbols;
  const auto count = static_cast<int32_t>(symbols.size());
  scratch.next.resize(symbols.size());
  scratch.previous.resize(symbols.size());
  std::vector<uint64_t>& heap = scratch.heap;
  heap.clear();
  const auto index = [](int32_t at) { return static_cast<size_t>(at); };
  const auto pair_at = [&](int32_t at) -> const MergeTable::Entry* {
    const int32_t next = scratch.next[index(at)];
    return next >= count ? nullptr : merges_.find(symbols[index(at)], symbols[index(next)]);
  };
  const auto push = [&](int32_t at) {
    const MergeTable::Entry* merge = pair_at(at);
    if (merge == nullptr) return;
    heap.push_back(uint64_t{merge->rank} << 32 | static_cast<uint32_t>(at));
    std::push_heap(heap.begin(), heap.end(), std::greater<>());
  };
  for (int32_t at = 0; at < count; ++at) {
    scratch.next[index(at)] = at + 1;
    scratch.previous[index(at)] = at - 1;
  }
  for (int32_t at = 0; at < count; ++at) push(at);
  while (!heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), std::greater<>());
    const uint64_t top = heap.back();
    heap.pop_back();
    const auto at = static_cast<int32_t>(top & 0xFFFFFFFFU);
    if (symbols[index(at)] < 0) continue;
    // An entry is old when its pair is gone: the pair there now has another rank.
    const MergeTable::Entry* merge = pair_at(at);
    if (merge == nullptr || merge->rank != top >> 32) continue;
    const int32_t gone = scratch.next[index(at)];
    symbols[index(at)] = merge->result;
    symbols[index(gone)] = -1;
    scratch.next[index(at)] = scratch.next[index(gone)];
    if (scratch.next[index(at)] < count) scratch.previous[index(scratch.next[index(at)])] = at;
    push(at);
    if (scratch.previous[index(at)] >= 0) push(scratch.previous[index(at)]);
  }
  std::erase(symbols, -1);
}

}  // namespace quire
