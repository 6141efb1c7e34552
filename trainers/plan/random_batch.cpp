#include "trainers/plan/random_batch.h"

#include <filesystem>

#include "core/random.h"
#include "data/corpus/corpus.h"

namespace quire {

int64_t expected_vocabulary(const RunConfig& config) {
  constexpr int64_t kBytes = 258;
  if (config.data.vocabulary) return *config.data.vocabulary;
  if (config.data.corpus.empty() || !std::filesystem::exists(config.data.corpus)) return kBytes;
  return Corpus::open(config.data.corpus, Verify::once)->tokenizer().vocabulary_size();
}

Batch random_batch(const DataConfig& data, int64_t vocabulary, int64_t step) {
  const auto count = static_cast<size_t>(data.rows * data.subsequence);
  Batch batch;
  batch.rows = data.rows;
  batch.length = data.subsequence;
  batch.tokens.resize(count);
  batch.targets.resize(count);
  batch.loss_mask.assign(count, 1);
  batch.segment.assign(count, 0);
  batch.position.resize(count);
  batch.document.assign(count, 0);
  batch.starts.assign(static_cast<size_t>(data.rows), step == 0 ? 1 : 0);
  batch.target_count = static_cast<int64_t>(count);
  for (size_t i = 0; i < count; ++i) {
    const auto bits = philox(RandomKey::of(7, step), hash_scope("bench"), 0, 0, static_cast<uint32_t>(i));
    batch.tokens[i] = static_cast<int32_t>(bits[0] % static_cast<uint64_t>(vocabulary));
    batch.targets[i] = static_cast<int32_t>(bits[1] % static_cast<uint64_t>(vocabulary));
    batch.position[i] = static_cast<int32_t>(step * data.subsequence + static_cast<int64_t>(i) % data.subsequence);
  }
  return batch;
}

}  // namespace quire
