#include "trainers/plan/longest_document.h"

#include <algorithm>
#include <filesystem>

namespace quire {

namespace {

bool is_here(const std::string& path) {
  std::error_code ignored;
  return !path.empty() && std::filesystem::exists(path, ignored);
}

int64_t longest_of(const Split& split) {
  int64_t longest = 0;
  for (int64_t n = 0; n < split.documents(); ++n) longest = std::max(longest, split.length(n));
  return longest;
}

// Returns the longest document of the split for training.
int64_t longest_for_training(const DataConfig& data, Corpus& corpus) {
  const Split& split = corpus.split(data.split);
  if (data.sampling == Sampling::windows) return data.subsequence;
  if (data.sampling == Sampling::documents) return longest_of(split);
  int64_t all = 0;
  for (int64_t n = 0; n < split.documents(); ++n) all += split.length(n) + 1;  // with the token before each document
  return (all + data.rows - 1) / data.rows;
}

}  // namespace

int64_t longest_document(const RunConfig& config, Corpus& corpus) {
  int64_t longest = config.data.mix.empty() ? longest_for_training(config.data, corpus) : 0;
  if (config.evaluate.every == 0) return longest;
  for (const std::string& name : config.evaluate.split.names) {
    longest = std::max(longest, longest_of(corpus.split(name)));
  }
  return longest;
}

std::optional<int64_t> longest_document(const RunConfig& config) {
  int64_t longest = 0;
  for (const MixConfig& part : config.data.mix) {
    if (part.task.task) {
      longest = std::max(longest, part.task.length);
    } else if (is_here(*part.corpus)) {
      longest = std::max(longest, longest_of(Corpus::open(*part.corpus, Verify::done)->split(part.split)));
    } else {
      return std::nullopt;
    }
  }
  if (!is_here(config.data.corpus)) return std::nullopt;
  return std::max(longest, longest_document(config, *Corpus::open(config.data.corpus, Verify::done)));
}

}  // namespace quire
