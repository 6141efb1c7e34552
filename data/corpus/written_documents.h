// The documents of a corpus that is being written, and the split of each.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "data/corpus/content_hash.h"

namespace quire {

struct WrittenDocument {
  std::string name;
  Hash128 hash;       // hash of its text
  int64_t first = 0;  // its first token in the spool
  int64_t tokens = 0;
  int64_t bytes = 0;
  int64_t words = 0;
  int64_t first_mark = 0;  // its first mark in the spool
  int64_t marks = 0;       // number of marks: tokens + 1, or 0
  std::optional<double> chance = {};
};

struct WrittenSplit {
  std::vector<const WrittenDocument*> documents;
  std::unordered_set<std::string_view> names;
  int64_t dropped = 0;
};

class WrittenDocuments {
 public:
  // Messages name `corpus`.
  explicit WrittenDocuments(std::string corpus) : corpus_(std::move(corpus)) {}

  void begin_split(const std::string& split);
  // Throws Error(data) that names `origin` when a name occurs twice in a split.
  void add(const std::string& split, WrittenDocument document, const std::string& origin);
  void drop(const std::string& split) { ++find_split(split).dropped; }

  int64_t documents(const std::string& split) const;
  int64_t dropped(const std::string& split) const;
  const std::map<std::string, WrittenSplit>& splits() const { return splits_; }

  // See CorpusWriter.
  void move_documents(const std::string& from, const std::string& to, const std::vector<std::string>& names,
                      const std::string& origin);
  void move_share(const std::string& from, const std::string& to, int64_t count);
  // Throws Error(data) for a text in two splits.
  void check_duplicates() const;

 private:
  WrittenSplit& find_split(const std::string& split);
  // Moves the documents for which moves(document) is true and keeps the order.
  template <typename Moves>
  void move_if(const std::string& from, const std::string& to, const Moves& moves);
  void add(const std::string& split, const WrittenDocument* document, const std::string& origin);

  std::string corpus_;
  std::deque<WrittenDocument> documents_;  // a deque, so that addresses stay valid
  std::map<std::string, WrittenSplit> splits_;
};

}  // namespace quire
