#include "tests/support/training_run.h"

#include "core/check.h"
#include "trainers/run/trainer.h"

namespace quire::test {

namespace {

std::vector<std::byte> bytes_of(const Tensor& tensor) {
  std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes()));
  tensor.download(bytes.data());
  return bytes;
}

}  // namespace

std::string difference(const RunSnapshot& a, const RunSnapshot& b) {
  std::string names;
  if (!(a.cursor == b.cursor)) names += "cursor ";
  if (a.step != b.step) names += "step ";
  if (a.tokens != b.tokens) names += "tokens ";
  if (a.tensors.size() != b.tensors.size()) names += "number of tensors ";
  for (const auto& [name, bytes] : a.tensors) {
    const auto found = b.tensors.find(name);
    if (found == b.tensors.end() || found->second != bytes) names += name + " ";
  }
  return names;
}

TrainingRun::TrainingRun(const RunConfig& config, Corpus& corpus, Ranks* ranks)
    : config_(config),
      corpus_(corpus),
      machine_(Machine::choose(config.run)),
      ranks_(ranks == nullptr ? one_ : *ranks),
      training_(std::make_unique<TrainingState>(config_, corpus.tokenizer().vocabulary_size(), machine_,
                                                RankPlace{ranks_.rank(), ranks_.size()})),
      batches_(std::make_unique<BatchSource>(corpus, config_.data.split, batch_options(config_, *training_))) {}

TrainingRun::TrainingRun(const RunConfig& config, Corpus& corpus, const std::filesystem::path& checkpoint,
                         bool drop_state)
    : TrainingRun(config, corpus) {
  // Other weights than those the run began with: what loading forgets stays different.
  RunConfig other = config;
  ++other.run.seed;
  training_ = std::make_unique<TrainingState>(other, corpus.tokenizer().vocabulary_size(), machine_);
  cursor_ = load_training(CheckpointReader::open(checkpoint), *training_, drop_state);
  batches_ = std::make_unique<BatchSource>(corpus, config_.data.split, batch_options(config_, *training_), cursor_);
}

StepResult TrainingRun::step(ReadResult read) {
  const std::optional<CursoredBatch> next = batches_->next();
  QUIRE_CHECK(next.has_value(), "training run: the endless batches ended");
  const StepResult result = train_step(*training_, config_, next->batch, ranks_, read);
  cursor_ = next->after;
  return result;
}

std::vector<double> TrainingRun::losses(int64_t steps) {
  std::vector<double> values;
  for (int64_t i = 0; i < steps; ++i) values.push_back(step().loss);
  return values;
}

std::filesystem::path TrainingRun::save(const std::filesystem::path& folder) {
  return save_training(folder, *training_, config_, corpus_, nullptr, cursor_, machine_, ranks_);
}

RunSnapshot TrainingRun::snapshot() const {
  RunSnapshot snapshot{{}, cursor_, training_->step, training_->tokens};
  for (const ParameterStore::Entry& entry : training_->store.entries()) {
    snapshot.tensors["w." + entry.name] = bytes_of(entry.variable.value());
  }
  for (const ParameterStore::Buffer& buffer : training_->store.buffers()) {
    snapshot.tensors["buffer." + buffer.name] = bytes_of(buffer.value);
  }
  for (const NamedTensor& moment : training_->optimizer->save()) {
    snapshot.tensors[moment.name] = bytes_of(moment.tensor);
  }
  for (const NamedTensor& state : training_->state->tensors()) {
    snapshot.tensors["state." + state.name] = bytes_of(state.tensor);
  }
  return snapshot;
}

}  // namespace quire::test
