#include "trainers/evaluation/evaluator.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <cmath>
#include <numeric>

#include "core/check.h"
#include "data/sources/word_counter.h"
#include "layers/model/model_mechanisms.h"
#include "layers/state/state_pool.h"
#include "trainers/evaluation/evaluation_batches.h"
#include "trainers/evaluation/evaluation_sums.h"
#include "trainers/evaluation/read_documents.h"

namespace quire {

namespace {

// Returns runs of rows that are not empty: near the end of a split most rows are empty and need no computation.
std::vector<std::pair<int64_t, int64_t>> active_runs(const Batch& batch) {
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (int64_t row = 0; row < batch.rows; ++row) {
    if (batch.segment[static_cast<size_t>(batch.at(row, 0))] < 0) continue;
    if (!runs.empty() && runs.back().second == row) {
      ++runs.back().second;
    } else {
      runs.emplace_back(row, row + 1);
    }
  }
  return runs;
}

std::vector<int64_t> cells(const std::vector<uint8_t>& marked) {
  std::vector<int64_t> places;
  for (size_t i = 0; i < marked.size(); ++i) {
    if (marked[i] != 0) places.push_back(static_cast<int64_t>(i));
  }
  return places;
}

// Returns the number of bytes of each token, by id.
std::vector<int64_t> bytes_of_tokens(const Tokenizer& tokenizer) {
  std::vector<int64_t> bytes;
  for (int32_t id = 0; id < tokenizer.vocabulary_size(); ++id) {
    bytes.push_back(static_cast<int64_t>(tokenizer.decode({&id, 1}).size()));
  }
  return bytes;
}

std::vector<double> as_doubles(const Tensor& tensor) {
  if (tensor.dtype() == DType::f64) return tensor.to_vector<double>();
  const std::vector<float> values = tensor.to_vector<float>();
  return {values.begin(), values.end()};
}

std::optional<PositionBins> make_bins(const EvaluationOptions& options, const Split& split,
                                      const std::vector<int64_t>& documents) {
  if (!options.bin_width) return std::nullopt;
  int64_t longest = 0;
  for (const int64_t document : documents) longest = std::max(longest, split.length(document) + 1);
  return PositionBins(longest, *options.bin_width);
}

// The rows of one rank. Each document begins in its own row, so the cut into subsequences, and so the result, does not
// depend on the other documents.
class Reader {
 public:
  Reader(Network& network, const ModelReading& reading, const Machine& machine, const BatchOptions& rows, int32_t eos,
         std::vector<int64_t> bytes)
      : network_(network),
        insertion_(network.model.insertion()),
        reach_(reading.model),
        eos_(eos),
        bytes_(std::move(bytes)) {
    if (rows.last_row == rows.first_row) return;  // there are more ranks than documents
    state_.emplace(network.declared.state, rows.last_row - rows.first_row, rows.data.subsequence, machine.dtype,
                   machine.device, machine.scratch);
  }

  void read(const EvaluationBatch& read, EvaluationSums& sums) {
    const Batch& batch = read.batch;
    if (!state_) return;
    state_->begin_step(batch);
    for (const auto& [begin, end] : active_runs(batch)) {
      const Batch part = batch.row_block(begin, end);
      origins_ = read.origins.empty() ? std::span<const int64_t>()
                                      : std::span(read.origins).subspan(static_cast<size_t>(begin));
      Tape tape(false);
      const StateView view = state_->view(begin, end);
      const std::vector<int64_t> asked = cells(sums.keeps_each() ? part.loss_mask : part.recalled);
      const TargetScores scores = network_.model.score({.tape = tape, .batch = part, .state = view}, asked);
      const std::vector<double> nll = as_doubles(scores.nll);
      for (size_t k = 0; k < asked.size(); ++k) {
        const auto cell = static_cast<size_t>(asked[k]);
        const bool recalled = !part.recalled.empty() && part.recalled[cell] != 0;
        const int64_t document = part.document[cell];
        if (recalled) sums.add_recalled(document, nll[cell], scores.best[k] == part.targets[cell]);
        if (sums.keeps_each()) {
          sums.keep({document, text_position(part, cell), nll[cell], part.targets[cell], scores.best[k], recalled});
        }
      }
      for (size_t i = 0; i < nll.size(); ++i) {
        if (part.loss_mask[i] != 0) add(part, i, nll[i], sums);
      }
    }
    state_->commit();
  }

 private:
  // Returns the position in the text. (Positions of the batch also count inserted tokens.)
  int64_t text_position(const Batch& part, size_t cell) const {
    const int64_t position = part.position[cell];
    if (!origins_.empty()) return position + origins_[cell / static_cast<size_t>(part.length)];
    // An inserted token with a target has the target of the token before it.
    return insertion_.tokens_before(position) - (insertion_.is_inserted(position) ? 1 : 0);
  }

  void add(const Batch& part, size_t cell, double nll, EvaluationSums& sums) const {
    const int64_t position = part.position[cell];
    const int64_t bytes = bytes_.empty() ? 0 : bytes_[static_cast<size_t>(part.targets[cell])];
    // A target also sees its own position.
    const int64_t seen = reach_({position, static_cast<int64_t>(cell) % part.length});
    if (part.targets[cell] == eos_) sums.add_end(nll);
    sums.add(part.document[cell], nll, text_position(part, cell), bytes,
             insertion_.tokens_before(position + 1) - insertion_.tokens_before(position - seen));
  }

  Network& network_;
  const Insertion& insertion_;
  ModelReach reach_;
  int32_t eos_;
  std::vector<int64_t> bytes_;  // bytes of each token, by id; or empty
  std::optional<StatePool> state_;
  std::span<const int64_t> origins_;  // of the rows that are read (EvaluationBatch)
};

void put_losses(const EvaluationSums& sums, const std::vector<int64_t>& documents, EvaluationResult& result) {
  ExactSum total;
  ExactSum recalled_total;
  for (size_t place = 0; place < documents.size(); ++place) {
    const DocumentSums& of = sums.documents()[static_cast<size_t>(documents[place])];
    DocumentResult& document = result.documents[place];
    document.nll = of.nll.value();
    document.by_position = sums.bins(of.document);
    total.add(of.nll);
    if (!result.recall) continue;
    document.recall.tokens = of.recalled;
    document.recall.correct = of.correct;
    document.recall.nll = of.recall_nll.value();
    result.recall->tokens += of.recalled;
    result.recall->correct += of.correct;
    recalled_total.add(of.recall_nll);
  }
  if (result.recall) result.recall->nll = recalled_total.value();
  result.nll = total.value();
}

// Replaces numbers of documents in the split by numbers of documents in the result.
std::vector<TargetLoss> by_place(std::vector<TargetLoss> targets, const std::vector<int64_t>& documents) {
  for (TargetLoss& target : targets) {
    target.document = std::lower_bound(documents.begin(), documents.end(), target.document) - documents.begin();
  }
  return targets;
}

// Sets the number of rows, and those of this rank: a row needs a document or a window.
void set_rows(BatchOptions& batches, const EvaluationOptions& options, const Split& split, const Ranks& ranks) {
  const int64_t items = options.stride ? StridedWindows(split.offsets(), batches, *options.stride).windows()
                                       : static_cast<int64_t>(batches.only->size());
  const int64_t rows = std::min(std::max<int64_t>(options.rows, ranks.size()), items);
  batches.data.rows = rows;
  batches.first_row = rows * ranks.rank() / ranks.size();
  batches.last_row = rows * (ranks.rank() + 1) / ranks.size();
}

std::optional<HarnessCounts> harness_counts(const Corpus& corpus, const Split& split,
                                            const std::vector<int64_t>& documents, const EvaluationSums& sums,
                                            const EvaluationResult& result) {
  if (!result.has_words || !result.complete || corpus.tokenizer().lossy() || corpus.word_rule() != kWordRule) return {};
  HarnessCounts counts;
  for (const int64_t document : documents) counts.words += parts_between_blanks(split, corpus.tokenizer(), document);
  counts.nll = result.nll - sums.ends().value();
  return counts;
}

// Removes the chances, which are only known for whole documents.
void forget_chances(EvaluationResult& result) {
  for (DocumentResult& document : result.documents) document.recall.chance.reset();
  if (result.recall) result.recall->chance.reset();
}

}  // namespace

void require_stride(const RunConfig& config, int64_t stride) {
  if (stride > config.data.subsequence) {
    fail(ErrorKind::config, "--stride {}: windows of {} tokens (data.subsequence) would leave out tokens between them",
         stride, config.data.subsequence);
  }
  if (insertion_of(config.model).any()) {
    fail(ErrorKind::config,
         "--stride {}: this model inserts tokens of its own at fixed places of a document, which windows would move; "
         "leave it out",
         stride);
  }
}

EvaluationResult evaluate(ParameterStore& store, const RunConfig& config, Corpus& corpus, const Machine& machine,
                          const EvaluationOptions& options) {
  const auto started = std::chrono::steady_clock::now();
  Ranks one;
  Ranks& ranks = options.ranks != nullptr ? *options.ranks : one;
  const Ranks::Operation operation(ranks, "evaluating");
  const Split& split = corpus.split(options.split);
  const ReadDocuments read = documents_of(options, split);
  const std::vector<int64_t>& documents = read.documents;

  EvaluationResult result;
  result.split = options.split;
  result.stride = options.stride;
  result.last = options.last;
  if (split.marked()) result.recall.emplace();
  list_documents(split, corpus.tokenizer(), config.data.score_first_token, read, options.last, result);
  EvaluationSums sums(documents.back() + 1, make_bins(options, split, documents), options.each_target);
  result.has_bytes_by_position = options.bin_width && !corpus.tokenizer().lossy() && result.has_text;

  const ModelReading reading = reading_of(config.model, config.data.subsequence, Purpose::evaluate);
  result.as_trained = reading.as_trained && (!options.stride || config.data.sampling == Sampling::windows);
  Network network(store, reading.model, corpus.tokenizer().vocabulary_size(), machine.dtype);
  BatchOptions batches{.data = config.data,
                       .insertion = network.model.insertion(),
                       .shuffle = false,
                       .endless = false,
                       .only = documents,
                       .last_tokens = read.last_targets,
                       .count_last = options.last};
  batches.data.pack = Pack::pad;
  batches.data.sampling = Sampling::documents;
  set_rows(batches, options, split, ranks);
  Reader reader(network, reading, machine, batches, corpus.tokenizer().eos_id(),
                result.has_bytes_by_position ? bytes_of_tokens(corpus.tokenizer()) : std::vector<int64_t>{});
  // Every rank deals all documents, so all make the same number of steps.
  EvaluationBatches source(corpus, options.split, batches, options.stride);
  double done = 0;
  while (const auto item = source.next()) {
    reader.read(*item, sums);
    // This sum also keeps the ranks in step, so that none waits for long.
    std::array<double, 1> targets{static_cast<double>(item->batch.target_count)};
    ranks.sum(targets);
    done += targets[0];
    if (options.progress) options.progress(static_cast<int64_t>(done), result.tokens);
    if (options.stop && options.stop()) {
      result.complete = false;
      break;
    }
  }
  sums.add_up(ranks);
  put_losses(sums, documents, result);
  result.harness = harness_counts(corpus, split, documents, sums, result);
  if (!result.complete) forget_chances(result);
  result.by_position = sums.bins();
  result.targets = by_place(sums.take_targets(), documents);
  QUIRE_CHECK(!result.complete || sums.targets() == result.tokens, "evaluate: {} targets were read of {}",
              sums.targets(), result.tokens);
  if (!std::isfinite(result.nll)) {  // the same on all ranks
    throw SharedError(ErrorKind::numerics,
                      fmt::format("evaluate: the loss on split {} is not finite; the weights of this checkpoint "
                                  "overflow",
                                  options.split));
  }
  result.context_mean = static_cast<double>(sums.seen()) / static_cast<double>(std::max<int64_t>(sums.targets(), 1));
  result.seconds = ranks.largest(std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count());
  return result;
}

}  // namespace quire
