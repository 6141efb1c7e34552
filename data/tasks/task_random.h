// Random numbers of a generated document. They depend only on the seed, the task's number in the run and the document's
// index, so that a document is the same on any rank and after any resume.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "core/random.h"

namespace quire {

struct DocumentKey {
  uint64_t seed = 0;
  uint32_t task = 0;  // distinguishes the tasks of one run
  int64_t index = 0;
};

class TaskRandom {
 public:
  // Makes a separate stream for every use, and for every block of a use.
  TaskRandom(const DocumentKey& key, std::string_view use, int64_t block = 0)
      : key_(RandomKey::of(key.seed, key.index)),
        scope_(hash_scope(use) + static_cast<uint32_t>(key.index >> 32) * 0x9E3779B9U),
        task_(key.task),
        block_(static_cast<uint32_t>(block)) {}

  uint64_t bits() {
    const std::array<uint32_t, 4> four = philox(key_, scope_, task_, block_, drawn_++);
    return uint64_t{four[0]} << 32 | four[1];
  }
  // Returns a uniform number in [0, count). The bias is below count / 2^64.
  int64_t below(int64_t count) { return static_cast<int64_t>(bits() % static_cast<uint64_t>(count)); }
  double uniform() { return static_cast<double>(bits() >> 11) * 0x1p-53; }
  template <typename List>
  const auto& one_of(const List& list) {
    return list[static_cast<size_t>(below(static_cast<int64_t>(std::size(list))))];
  }

 private:
  RandomKey key_;
  uint32_t scope_;
  uint32_t task_;
  uint32_t block_;
  uint32_t drawn_ = 0;
};

}  // namespace quire
