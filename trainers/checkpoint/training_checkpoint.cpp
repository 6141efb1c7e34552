#include "trainers/checkpoint/training_checkpoint.h"

#include <algorithm>
#include <map>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/log.h"
#include "data/tokenizers/make_tokenizer.h"
#include "kernels/elementwise.h"
#include "trainers/checkpoint/checkpoint_folder.h"
#include "trainers/checkpoint/checkpoint_meta.h"
#include "trainers/checkpoint/row_state.h"
#include "trainers/checkpoint/stored_moments.h"
#include "trainers/setup/attention_choice.h"
#include "trainers/setup/previous_form.h"

namespace quire {

namespace {

constexpr const char* kAveragePart = "ema";

// Says whether every value of a stored type is one of the model's type, too: imported weights may be stored in bf16.
bool is_kept_by(DType stored, DType type) {
  return stored == type || (stored == DType::bf16 && (type == DType::f32 || type == DType::f64));
}

// Fills `tensors` from the tensors of a part, with at most one file in memory. Throws an error that names the tensor
// when one is missing, has another shape or is not needed.
void load_part(const CheckpointReader& reader, const std::string& file, const std::vector<NamedTensor>& tensors) {
  if (!reader.has_part(file)) {
    fail(ErrorKind::checkpoint, "{}: has no {}.h5; use another checkpoint of the run", reader.path().string(), file);
  }
  std::map<std::string, Tensor> left;
  for (const NamedTensor& tensor : tensors) left.emplace(tensor.name, tensor.tensor);
  std::string unknown;
  reader.visit_part(file, [&](const NamedTensor& stored) {
    const auto found = left.find(stored.name);
    if (found == left.end()) {
      if (unknown.empty()) unknown = stored.name;
      return;
    }
    const Tensor& to = found->second;
    const Tensor& tensor = stored.tensor;
    if (!(tensor.shape() == to.shape()) || !is_kept_by(tensor.dtype(), to.dtype())) {
      fail(ErrorKind::checkpoint, "{}.h5: {} is {} {} but the model wants {} {}", file, stored.name,
           name_of(tensor.dtype()), tensor.shape().to_string(), name_of(to.dtype()), to.shape().to_string());
    }
    if (tensor.dtype() == to.dtype()) {
      to.copy_from(tensor);
    } else {
      const Tensor wide = Tensor::empty(to.shape(), to.dtype());
      ops::convert(wide, tensor);
      to.copy_from(wide);
    }
    left.erase(found);
  });
  if (!left.empty()) {
    fail(ErrorKind::checkpoint, "{}.h5: has no {}; the checkpoint is of another model", file, left.begin()->first);
  }
  if (!unknown.empty()) {
    fail(ErrorKind::checkpoint, "{}.h5: {} is not in this model; the checkpoint is of another model", file, unknown);
  }
}

// Returns weights and buffers under the names in the checkpoint.
std::vector<NamedTensor> tensors_of(const ParameterStore& store) {
  std::vector<NamedTensor> tensors;
  for (const ParameterStore::Entry& entry : store.entries()) tensors.push_back({entry.name, store.value(entry)});
  for (const ParameterStore::Buffer& buffer : store.buffers()) {
    tensors.push_back({"buffer." + buffer.name, buffer.value});
  }
  return tensors;
}

}  // namespace

void require_same_weights(const ParameterStore& store, Ranks& ranks) {
  if (ranks.size() == 1) return;
  // The arena is read in pieces, because every rank of a host makes a copy of each piece.
  constexpr int64_t kPiece = int64_t{16} << 20;
  Checksum checksum;
  const auto add = [&](const Tensor& tensor) {
    const Tensor flat = tensor.reshape({tensor.numel()});
    for (int64_t begin = 0; begin < flat.numel(); begin += kPiece) {
      const Tensor host = flat.slice(0, begin, std::min(begin + kPiece, flat.numel())).to(kCpu);
      checksum.add({static_cast<const std::byte*>(host.raw()), static_cast<size_t>(host.bytes())});
    }
  };
  add(store.values());
  for (const ParameterStore::Buffer& buffer : store.buffers()) add(buffer.value);
  ranks.agree("checksums of the weights", checksum.text(),
              "one of them has computed something else, so this is no state to go on from; resume from the last "
              "checkpoint, and look for a faulty machine if it happens again");
}

std::filesystem::path save_training(const std::filesystem::path& checkpoints_dir, const TrainingState& training,
                                    const RunConfig& config, const Corpus& corpus, const TrainingMixture* mixture,
                                    const Cursor& cursor, const Machine& machine, Ranks& ranks) {
  require_same_weights(training.store, ranks);
  const auto write_files = [&](CheckpointFolder& folder) {
    // All ranks have the same weights, and divide the work of writing them.
    const FileShare share{ranks.rank(), ranks.size()};
    folder.write({"model", tensors_of(training.store), {}}, kPartFileBytes, share);
    if (training.average) folder.write({kAveragePart, training.average->save(), {}}, kPartFileBytes, share);
    folder.write({moments_part_name(ranks.rank()), training.optimizer->save(), {}});
    if (training.state->rows() > 0) save_row_state(folder, *training.state, training.first_row);
  };
  CheckpointMeta meta{.step = training.step,
                      .tokens = training.tokens,
                      .rows = config.data.rows,
                      .ranks = ranks.size(),
                      .skipped = training.skipped,
                      .skips_in_a_row = training.skips_in_a_row,
                      .logged = training.logged,
                      .cursor = cursor,
                      .corpus = corpus.hash(),
                      .backend = machine.backend,
                      .dtype = name_of(machine.dtype)};
  if (!training.attention.empty()) meta.attention = training.attention.to_text(attention_heading(machine.device));
  if (mixture != nullptr) meta.mix = mixture->hashes();
  return write_checkpoint(
      checkpoints_dir, training.step, ranks, write_files, meta.to_json(),
      {{"config.yaml", dump_saved_config(config)}, {"tokenizer.txt", corpus.tokenizer().serialise()}});
}

CheckpointReader open_checkpoint(const std::filesystem::path& checkpoint, bool verify) {
  CheckpointReader reader = CheckpointReader::open(checkpoint, verify);
  checkpoint_meta(reader);
  return reader;
}

RunConfig checkpoint_config(const CheckpointReader& reader) {
  const std::string name = (reader.path() / "config.yaml").string();
  try {
    return read_written_config(reader.read_text("config.yaml"), name);
  } catch (const Error& error) {
    fail(ErrorKind::checkpoint, "{}", error.what());
  }
}

std::unique_ptr<Tokenizer> checkpoint_tokenizer(const CheckpointReader& reader) {
  return make_tokenizer(reader.read_text("tokenizer.txt"), (reader.path() / "tokenizer.txt").string(),
                        ErrorKind::checkpoint);
}

void load_weights(const CheckpointReader& reader, ParameterStore& store, Weights which) {
  load_part(reader, "model", tensors_of(store));
  if (which == Weights::trained) {
    store.publish();
    return;
  }
  if (!reader.has_part(kAveragePart)) {
    fail(ErrorKind::config, "{}: holds no average of the weights; a run keeps one with optimizer.ema.decay",
         reader.path().string());
  }
  std::vector<NamedTensor> parameters;
  for (const ParameterStore::Entry& entry : store.entries()) parameters.push_back({entry.name, store.value(entry)});
  load_part(reader, kAveragePart, parameters);
  store.publish();
}

Cursor load_training(const CheckpointReader& reader, TrainingState& training, bool drop_state) {
  const CheckpointMeta meta = checkpoint_meta(reader);
  load_weights(reader, training.store);
  load_moments(reader, training.store, *training.optimizer, training.parts->place());
  if (training.average) {
    load_part(reader, kAveragePart, training.average->save());
  }
  if (!drop_state && training.state->rows() > 0) load_row_state(reader, *training.state, training.first_row);
  const Device device = training.store.values().device();
  if (!meta.attention.empty() && !training.attention.add(meta.attention, attention_heading(device))) {
    log_warn(
        "the checkpoint's choice between cuDNN's attention and this program's was made on another GPU or with another "
        "version of cuDNN: it is made anew, and results may differ in the last bits");
  }
  training.step = meta.step;
  training.tokens = meta.tokens;
  training.skipped = meta.skipped;
  training.skips_in_a_row = meta.skips_in_a_row;
  training.logged = meta.logged;
  return meta.cursor;
}

}  // namespace quire
