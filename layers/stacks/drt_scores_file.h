// Scores of chunks that another retriever has computed, read from a file (scores: file). It is the baseline with a
// fixed retriever of Hu et al. 2025.
#pragma once

#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "layers/stacks/drt_choice.h"

namespace quire {

class ChunkScoresFile {
 public:
  // Reads the file: one JSON object a line, as the help of scores_file says. An index of -1 stands for nothing. Throws
  // Error(data) that names the line for text of another form, a chunk out of order, an index that is no earlier chunk
  // or occurs twice, and a score that is not finite.
  explicit ChunkScoresFile(const std::string& path);

  // Returns the scores of the candidates that the file names. Throws Error(config) for a document without a name, and
  // Error(data) for one that the file lacks or does not have to its end.
  GivenScores scores(const Forward& f, const ChunkCut& cut, const CarriedBlocks& carried, DType wide) const;

 private:
  struct Entry {
    int32_t chunk;
    float score;
  };
  // The lists of a document, one for each of its chunks: list n is entries [ends[n - 1], ends[n]).
  struct Document {
    std::vector<int64_t> ends;
    std::vector<Entry> entries;
  };
  void add_line(std::string_view text);
  // Returns the entries of a chunk, by their chunks.
  std::span<const Entry> list_of(const Forward& f, int64_t row, const WholeChunk& chunk) const;

  std::string path_;
  std::map<std::string, Document> documents_;
};

}  // namespace quire
