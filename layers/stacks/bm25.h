// BM25 over the last chunks of one document (Robertson and Zaragoza 2009; the form of Lucene): how well each earlier
// chunk answers to the tokens of a new one. With n chunks so far, df of them with token w, and tf times w in chunk c,
//
//   idf(w) = ln(1 + (n - df + 0.5) / (df + 0.5))
//   score(c) = sum over the distinct w of the query of idf(w) tf (k1 + 1) / (tf + k1 (1 - b + b length(c) / mean
//   length))
#pragma once

#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "core/config/config.h"

namespace quire {

struct Bm25Config {
  double k1 = 1.2;
  double b = 0.75;
  bool repeated = false;
  std::string_view inapplicable = {};  // why nothing is scored so

  template <class Visitor>
  void fields(Visitor& v) {
    v.field(
        "k1", k1,
        {.help = "how soon more of the same token counts no more", .min = 0, .max = 100, .inapplicable = inapplicable});
    v.field("b", b,
            {.help = "how much a chunk's length counts; the chunks of a document are equally long but for the last one",
             .min = 0,
             .max = 1,
             .inapplicable = inapplicable});
    v.field("repeated", repeated,
            {.help = "a token of the query counts as often as it stands there", .inapplicable = inapplicable});
  }
};

class Bm25 {
 public:
  // The last `window` chunks are known.
  Bm25(const Bm25Config& config, int64_t window) : config_(config), window_(window) {}

  // Adds the next chunk of the document.
  void add(std::span<const int32_t> chunk);
  // Returns the scores of chunks [first, last) for a query that stands behind the first `before` chunks, which alone it
  // can read: 0 for those that are no longer known. Statistics count the known ones.
  std::vector<double> scores(std::span<const int32_t> query, int64_t before, int64_t first, int64_t last) const;

 private:
  struct Posting {
    int64_t chunk;
    double count;
  };
  Bm25Config config_;
  int64_t window_;
  std::unordered_map<int32_t, std::vector<Posting>> postings_;  // by token, in the order of chunks
  std::vector<double> ends_{0};                                 // sums of the lengths of the first 0, 1, 2, ... chunks
};

}  // namespace quire
