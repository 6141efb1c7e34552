#include "trainers/evaluation/generator.h"

#include <algorithm>

#include "core/check.h"
#include "data/sources/utf8.h"
#include "layers/model/model_mechanisms.h"

namespace quire {

Generator::Generator(ParameterStore& store, const RunConfig& config, const Tokenizer& tokenizer, const Machine& machine)
    : tokenizer_(tokenizer),
      subsequence_(config.data.subsequence),
      // Positions beyond the subsequence were never met in training.
      room_(config.model.embedding.learned_positions ? std::optional(subsequence_) : std::nullopt),
      network_(store, reading_of(config.model, config.data.subsequence, Purpose::generate).model,
               tokenizer.vocabulary_size(), machine.dtype),
      inserter_(network_.model.insertion(), tokenizer.vocabulary_size()),
      state_(network_.declared.state, 1, subsequence_, machine.dtype, machine.device) {}

Generator::Generator(ParameterStore& store, const RunConfig& config, const Tokenizer& tokenizer, const Machine& machine,
                     std::string_view prompt)
    : Generator(store, config, tokenizer, machine) {
  std::vector<int32_t> ids{tokenizer.bos_id()};
  tokenizer.encode(prompt, ids);
  read(ids);
}

Generator::Mark Generator::mark() const {
  Mark mark{state_.save_counts(), {}, logits_, position_};
  mark.row.reserve(static_cast<size_t>(state_.row_bytes(0, RowExtent::readable)));
  state_.save_row(
      0, [&](std::span<const std::byte> bytes) { mark.row.insert(mark.row.end(), bytes.begin(), bytes.end()); },
      RowExtent::readable);
  return mark;
}

void Generator::go_back(const Mark& mark) {
  state_.load_counts(0, 1, [&](const std::string& name) {
    const auto found =
        std::find_if(mark.counts.begin(), mark.counts.end(), [&](const NamedTensor& one) { return one.name == name; });
    QUIRE_CHECK(found != mark.counts.end(), "generator: the mark has no {}", name);
    return found->tensor;
  });
  size_t at = 0;
  const auto read = [&](std::span<std::byte> bytes) {
    QUIRE_CHECK(at + bytes.size() <= mark.row.size(), "generator: the mark has {} bytes", mark.row.size());
    std::copy_n(mark.row.begin() + static_cast<std::ptrdiff_t>(at), bytes.size(), bytes.begin());
    at += bytes.size();
  };
  state_.load_row(0, read, RowExtent::readable);
  logits_ = mark.logits;
  position_ = mark.position;
}

void Generator::begin_document() {
  position_ = 0;
  const int32_t bos = tokenizer_.bos_id();
  read({&bos, 1});
}

void Generator::require_room(int64_t count) const {
  if (!room_ || tokens() + count <= *room_) return;
  fail(ErrorKind::config,
       "model.embedding.learned_positions: {} tokens, BOS included, are more than the {} of data.subsequence; take a "
       "shorter text, or a data.subsequence of up to as many tokens as there are positions",
       tokens() + count, *room_);
}

void Generator::read(std::span<const int32_t> ids) {
  inserter_.check(ids, "the text to go on with");
  require_room(static_cast<int64_t>(ids.size()));
  const int64_t end = inserter_.insertion().positions(tokens() + static_cast<int64_t>(ids.size()));
  while (position_ < end) {
    const int64_t count = std::min(end - position_, subsequence_);
    const auto taken = static_cast<size_t>(inserter_.tokens(position_, count));
    read_subsequence(ids.first(taken), count);
    ids = ids.subspan(taken);
  }
}

int32_t Generator::most_likely() const {
  std::vector<float> logits = logits_;
  exclude_bos(logits, tokenizer_);
  return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
}

void Generator::read_subsequence(std::span<const int32_t> ids, int64_t count) {
  Batch batch = Batch::empty(1, count, 0, {.inserted = inserter_.insertion().any()});
  std::copy(ids.begin(), ids.end(), batch.tokens.begin());
  inserter_.spread(batch, 0, position_, count);
  batch.segment.assign(static_cast<size_t>(count), 0);
  batch.document.assign(static_cast<size_t>(count), 0);
  for (int64_t i = 0; i < count; ++i) {
    batch.position[static_cast<size_t>(i)] = static_cast<int32_t>(std::min<int64_t>(position_ + i, INT32_MAX));
  }
  batch.starts[0] = position_ == 0 ? 1 : 0;

  state_.begin_step(batch);
  Tape tape(false);
  const StateView view = state_.view(0, 1);
  const Tensor logits = network_.model.next_logits({.tape = tape, .batch = batch, .state = view}, batch.length - 1);
  state_.commit();
  if (logits.dtype() == DType::f64) {
    const std::vector<double> wide = logits.to_vector<double>();
    logits_.assign(wide.begin(), wide.end());
  } else {
    logits_ = logits.to_vector<float>();
  }
  position_ += count;
}

int32_t Generator::next(const SamplingOptions& options) {
  exclude_bos(logits_, tokenizer_);
  const int32_t id = sample_token(logits_, options, sampling_draw(options.seed, position_));
  if (id != tokenizer_.eos_id()) read({&id, 1});
  return id;
}

std::string generate(Generator& generator, const Tokenizer& tokenizer, const SamplingOptions& options,
                     const std::function<void(std::string_view)>& write) {
  // The last token is not read.
  generator.require_room(std::max<int64_t>(options.length - 1, 0));
  std::string text;
  size_t written = 0;
  for (int64_t i = 0; i < options.length; ++i) {
    const int32_t id = generator.next(options);
    if (id == tokenizer.eos_id()) break;
    text += tokenizer.decode({&id, 1});
    const size_t whole = text.size() - unfinished_bytes(text);
    if (write && whole > written) {
      write(std::string_view(text).substr(written, whole - written));
      written = whole;
    }
  }
  if (write && written < text.size()) write(std::string_view(text).substr(written));
  return text;
}

}  // namespace quire
