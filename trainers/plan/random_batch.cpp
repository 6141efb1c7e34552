#include "trainers/plan/random_batch.h"

#include <filesystem>

#include "core/check.h"
#include "core/log.h"
#include "core/random.h"
#include "data/batches/inserter.h"
#include "data/corpus/corpus.h"

namespace quire {

namespace {

constexpr int64_t kBytes = 258;

}  // namespace

int64_t expected_vocabulary(const RunConfig& config) {
  if (config.data.vocabulary) return *config.data.vocabulary;
  if (config.data.corpus.empty() || !std::filesystem::exists(config.data.corpus)) return kBytes;
  return Corpus::open(config.data.corpus, Verify::once)->tokenizer().vocabulary_size();
}

void tell_guessed_vocabulary(const RunConfig& config) {
  const std::string& corpus = config.data.corpus;
  if (config.data.vocabulary || corpus.empty() || std::filesystem::exists(corpus)) return;
  log_info(
      fmt::format("{}: no such corpus; {} token ids are taken, those of bytes (data.vocabulary sets another number)",
                  corpus, kBytes));
}

Batch random_batch(const DataConfig& data, int64_t vocabulary, const Insertion& insertion, int64_t step) {
  const Inserter inserter(insertion, vocabulary);
  Batch batch = Batch::empty(data.rows, data.subsequence, 0, {.inserted = insertion.any()});
  const int64_t place = step * data.subsequence;
  for (size_t i = 0; i < batch.tokens.size(); ++i) {
    const auto bits = philox(RandomKey::of(7, step), hash_scope("bench"), 0, 0, static_cast<uint32_t>(i));
    batch.tokens[i] = static_cast<int32_t>(bits[0] % static_cast<uint64_t>(vocabulary));
    batch.targets[i] = static_cast<int32_t>(bits[1] % static_cast<uint64_t>(vocabulary));
    batch.position[i] = static_cast<int32_t>(place + static_cast<int64_t>(i) % data.subsequence);
  }
  batch.loss_mask.assign(batch.tokens.size(), 1);
  batch.segment.assign(batch.tokens.size(), 0);
  batch.document.assign(batch.tokens.size(), 0);
  batch.starts.assign(static_cast<size_t>(data.rows), step == 0 ? 1 : 0);
  for (int64_t row = 0; row < data.rows; ++row) {
    inserter.spread(batch, batch.at(row, 0), place, data.subsequence, {.counted = true});
  }
  for (const uint8_t counted : batch.loss_mask) batch.target_count += counted;
  return batch;
}

}  // namespace quire
