// An inverted file over the keys of one row and key head: an approximate search for very large memories on the CPU.
// Keys are grouped around centroids, and only the groups nearest to a query are searched. FAISS does this, through the
// optional library libquire_faiss.so.
//
// Entries are numbered from the first one ever written, 0, 1, ...; with `written` entries the last min(written,
// capacity) are readable. At every multiple B of `period` the centroids are learned anew from the entries [max(0, B -
// capacity + period), B), all of which stay readable until the next multiple. So the index depends only on the readable
// entries and their count: one that is rebuilt after a resume equals that of a run without a break. Learning has a
// fixed seed and uses one thread.
#pragma once

#include <functional>
#include <memory>

#include "kernels/knn.h"

namespace quire {

// The interface that the library implements.
class InvertedLists {
 public:
  virtual ~InvertedLists() = default;
  // Adds keys [count, size], which are the entries from `first` on.
  virtual void add(const float* keys, int64_t first, int64_t count) = 0;
  // Writes numbers [queries, top_k]: the entries in [low, high) with the largest products, from the `probes` nearest
  // groups; -1 where there are fewer.
  virtual void search(int64_t* numbers, const float* q, int64_t queries, int64_t top_k, int64_t probes, int64_t low,
                      int64_t high) const = 0;
};
// Learns the centroids of `lists` groups from keys [count, size] and returns the lists, still empty.
using LearnInvertedLists = std::unique_ptr<InvertedLists> (*)(const float* keys, int64_t count, int64_t size,
                                                              int64_t lists);
// The library calls this when it is loaded.
void register_inverted_lists(LearnInvertedLists learn);

struct KnnIndexOptions {
  int64_t size = 0;      // features of a key
  int64_t capacity = 0;  // slots of the ring
  int64_t lists = 0;     // groups; fewer while there are not 39 entries per group
  int64_t period = 0;    // entries written between two times of learning, below capacity
};

// Copies entries [first, first + count), all readable, to [count, size].
using ReadEntries = std::function<void(float* to, int64_t first, int64_t count)>;
// Reads the keys of a row and key head of a memory on the CPU in which `written` entries have been written.
ReadEntries read_entries(const ops::KnnMemory& memory, int64_t row, int64_t kv_head, int64_t written);

class KnnIndex {
 public:
  // Throws Error(config) when the library is missing or an option is out of range.
  explicit KnnIndex(const KnnIndexOptions& options);

  // Must be called after entries have been written, and once after a resume.
  void update(int64_t written, const ReadEntries& read);
  // Removes all entries: the row begins another document.
  void clear();
  // Returns false before the first multiple of the period; the caller must search exactly until then.
  bool is_ready() const { return lists_ != nullptr; }

  // Writes index and score [queries, top_k] as ops::knn_search does, with entries counted from the oldest readable
  // one. The entries that the lists propose are scored again with the keys that `read` gives, in the order of the exact
  // search.
  void search(int32_t* index, float* score, const float* q, int64_t queries, int64_t top_k, int64_t probes,
              const ReadEntries& read) const;

 private:
  KnnIndexOptions options_;
  std::unique_ptr<InvertedLists> lists_;
  int64_t learned_at_ = 0;
  int64_t written_ = 0;
};

// Returns the share of the entries of an exact search that another search found as well; -1 stands for no entry. 1 when
// the exact search found none.
double recall(const int32_t* found, const int32_t* exact, int64_t queries, int64_t top_k);

}  // namespace quire
