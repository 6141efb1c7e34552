#include "trainers/trace/trace_reader.h"

#include <algorithm>

#include "core/check.h"
#include "data/batches/packer.h"
#include "data/sources/utf8.h"
#include "layers/model/model_mechanisms.h"
#include "layers/pass/host_values.h"
#include "layers/state/state_pool.h"
#include "trainers/trace/trace_gatherer.h"

namespace quire {

namespace {

// One text in memory, as the data path reads documents.
class OneText final : public Documents {
 public:
  explicit OneText(const std::vector<int32_t>& ids) : ids_(ids) {}
  int64_t length(int64_t) const override { return static_cast<int64_t>(ids_.size()); }
  void tokens(int64_t, int64_t begin, int64_t count, int32_t* out) const override {
    std::copy_n(ids_.begin() + static_cast<std::ptrdiff_t>(begin), count, out);
  }
  void marks(int64_t, int64_t, int64_t count, uint8_t* out) const override { std::fill_n(out, count, kCounted); }
  bool marked() const override { return false; }

 private:
  const std::vector<int32_t>& ids_;
};

// Positions of tokens in the text, and their losses.
using SubsequenceLosses = std::vector<std::pair<int64_t, double>>;

// Reads the text with the model: with its state, and each subsequence also with empty state.
class TracedReader {
 public:
  TracedReader(ParameterStore& store, const RunConfig& config, const Tokenizer& tokenizer, const Machine& machine,
               const TraceText& text)
      : reading_(reading_of(config.model, config.data.subsequence, Purpose::evaluate)),
        network_(store, reading_.model, tokenizer.vocabulary_size(), machine.dtype),
        documents_(text.ids),
        packer_(documents_, tokenizer, batches(config)),
        carried_(network_.declared.state, 1, config.data.subsequence, machine.dtype, machine.device, machine.scratch),
        empty_(network_.declared.state, 1, config.data.subsequence, machine.dtype, machine.device, machine.scratch),
        text_(text),
        subsequence_(config.data.subsequence) {}

  bool as_trained() const { return reading_.as_trained; }
  const Insertion& insertion() const { return network_.model.insertion(); }
  int64_t position() const { return position_; }
  // Reads the next subsequence; returns its losses.
  SubsequenceLosses read(Retrievals* retrieved) {
    const int64_t left = insertion().positions(static_cast<int64_t>(text_.ids.size()) + 1) - position_;
    const Piece piece{.count = std::min(subsequence_, left),
                      .offset = insertion().tokens_before(position_),
                      .place = position_,
                      .phase = position_};
    Batch batch = packer_.pack({&piece, 1});
    const std::vector<double> nll = score(carried_, batch, retrieved, true);
    carried_.commit();
    if (retrieved != nullptr) last_ = batch;
    begin_ = position_;
    position_ += piece.count;
    return losses(batch, nll, 0);
  }
  // Reads the same tokens of the text as the beginning of a document.
  SubsequenceLosses read_without_state() {
    const int64_t offset = insertion().tokens_before(begin_);
    const int64_t tokens = insertion().tokens_before(position_) - offset;
    const Piece piece{.count = std::min(subsequence_, insertion().positions(tokens)), .offset = offset};
    if (piece.count == 0) return {};
    Batch batch = packer_.pack({&piece, 1});
    return losses(batch, score(empty_, batch, nullptr, false), offset);
  }
  // Returns the batch of the last call of read() that listened.
  const Batch& last() const { return last_; }

 private:
  // `offset` is the token of the text at position 0 of the batch.
  SubsequenceLosses losses(const Batch& batch, const std::vector<double>& nll, int64_t offset) const {
    SubsequenceLosses losses;
    for (size_t cell = 0; cell < nll.size(); ++cell) {
      if (batch.loss_mask[cell] == 0) continue;
      const int64_t position = batch.position[cell];
      // An inserted token with a target has the target of the token before it.
      const int64_t target = offset + insertion().tokens_before(position) + (insertion().is_inserted(position) ? 0 : 1);
      if (target <= static_cast<int64_t>(text_.ids.size()) || text_.ends) losses.emplace_back(target, nll[cell]);
    }
    return losses;
  }
  BatchOptions batches(const RunConfig& config) const {
    DataConfig data = config.data;
    data.rows = 1;
    data.pack = Pack::pad;
    return {.data = data, .last_row = 1, .insertion = insertion()};
  }
  std::vector<double> score(StatePool& pool, const Batch& batch, Retrievals* retrieved, bool write) const {
    pool.begin_step(batch);
    Tape tape(false);
    const StateView view = pool.view(0, 1);
    return values_on_host(
        network_.model
            .score({.tape = tape, .batch = batch, .state = view, .write_state = write, .retrieved = retrieved}, {})
            .nll);
  }

  ModelReading reading_;
  Network network_;
  OneText documents_;
  Packer packer_;
  StatePool carried_, empty_;
  const TraceText& text_;
  int64_t subsequence_;
  int64_t begin_ = 0;     // model position of the last subsequence
  int64_t position_ = 0;  // model positions read
  Batch last_;
};

// Returns the tokens to trace, without losses and reads.
std::vector<TraceToken> tokens_of(const Tokenizer& tokenizer, const TraceText& text, int64_t from, int64_t count) {
  std::vector<TraceToken> tokens;
  std::string pending;
  const auto stored = static_cast<int64_t>(text.ids.size());
  for (int64_t position = from; position < from + count; ++position) {
    const int32_t id = position == 0       ? tokenizer.bos_id()
                       : position > stored ? tokenizer.eos_id()
                                           : text.ids[static_cast<size_t>(position - 1)];
    pending += tokenizer.decode({&id, 1});
    const size_t whole = position + 1 == from + count ? pending.size() : pending.size() - unfinished_bytes(pending);
    tokens.push_back({.id = id, .text = pending.substr(0, whole), .nll = {}, .nll_without_state = {}});
    pending.erase(0, whole);
  }
  return tokens;
}

void put_losses(const SubsequenceLosses& losses, std::optional<double> TraceToken::*which, Trace& trace) {
  for (const auto& [target, nll] : losses) {
    const int64_t token = target - trace.from;
    if (token < 0 || token >= static_cast<int64_t>(trace.tokens.size())) continue;
    trace.tokens[static_cast<size_t>(token)].*which = nll;
  }
}

int64_t checked_count(const TraceText& text, const TraceOptions& options, int64_t length) {
  if (options.from >= length) {
    fail(ErrorKind::config, "--from {}: {} has {} tokens, counted from 0", options.from, text.name, length);
  }
  if (options.count && *options.count > length - options.from) {
    fail(ErrorKind::config, "--count {}: {} has {} tokens from {} on", *options.count, text.name, length - options.from,
         options.from);
  }
  const int64_t count = options.count.value_or(length - options.from);
  if (count > kMaxTracedTokens) {
    fail(ErrorKind::config,
         "trace: {} tokens of {} are too many for one trace, which holds at most {}; choose some with "
         "--from and --count",
         count, text.name, kMaxTracedTokens);
  }
  return count;
}

}  // namespace

Trace trace_text(ParameterStore& store, const RunConfig& config, const Tokenizer& tokenizer, const Machine& machine,
                 const TraceText& text, const TraceOptions& options) {
  if (!retrieves(config.model)) {
    fail(ErrorKind::config, "trace: no layer of this model retrieves earlier tokens, so there is nothing to trace");
  }
  Trace trace;
  trace.length = static_cast<int64_t>(text.ids.size()) + 1 + (text.ends ? 1 : 0);
  const int64_t end = options.from + checked_count(text, options, trace.length);
  Inserter({}, tokenizer.vocabulary_size()).check(text.ids, text.name);
  trace.from = options.from;
  trace.subsequence = config.data.subsequence;
  trace.tokens = tokens_of(tokenizer, text, options.from, end - options.from);
  TracedReader reader(store, config, tokenizer, machine, text);
  trace.as_trained = reader.as_trained();
  TraceGatherer gatherer(trace, reader.insertion(), options.top_k);
  // EOS is predicted, never read.
  const int64_t until = reader.insertion().positions(std::min(end, static_cast<int64_t>(text.ids.size()) + 1));
  // The loss of the first token comes with the token before it.
  const int64_t first = reader.insertion().position_of(std::max<int64_t>(options.from - 1, 0));
  while (reader.position() < until) {
    const int64_t begin = reader.position();
    const int64_t cut = reader.insertion().tokens_before(begin);
    if (cut > options.from && cut < end) trace.cuts.push_back(cut);
    const bool matters = begin + trace.subsequence > first;
    Retrievals retrieved;
    const SubsequenceLosses losses = reader.read(matters ? &retrieved : nullptr);
    if (matters) {
      put_losses(losses, &TraceToken::nll, trace);
      put_losses(begin == 0 ? losses : reader.read_without_state(), &TraceToken::nll_without_state, trace);
      gatherer.add(reader.last(), retrieved);
    }
    if (options.progress) options.progress(std::min(reader.insertion().tokens_before(reader.position()), end), end);
  }
  gatherer.finish();
  return trace;
}

}  // namespace quire
