#include "trainers/checkpoint/training_checkpoint.h"

#include <algorithm>
#include <map>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/log.h"
#include "data/tokenizers/make_tokenizer.h"
#include "trainers/checkpoint/checkpoint_folder.h"
#include "trainers/checkpoint/row_state.h"
#include "trainers/checkpoint/stored_moments.h"
#include "trainers/run/attention_choice.h"

namespace quire {

namespace {

constexpr int64_t kTrainingVersion = 3;
constexpr const char* kAveragePart = "ema";

// Looks tensors of a part up by name; what is missing or has another shape is an error that names it.
class PartLookup {
 public:
  PartLookup(const CheckpointReader& reader, const std::string& file) : file_(file) {
    if (!reader.has_part(file)) {
      fail(ErrorKind::checkpoint, "{}: has no {}.h5; use another checkpoint of the run", reader.path().string(), file);
    }
    CheckpointPart part = reader.read_part(file);
    for (NamedTensor& tensor : part.tensors) tensors_[tensor.name] = std::move(tensor.tensor);
  }
  Tensor get(const std::string& name) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) {
      fail(ErrorKind::checkpoint, "{}.h5: has no {}; the checkpoint is of another model", file_, name);
    }
    used_.push_back(name);
    return found->second;
  }
  Tensor get(const std::string& name, const Tensor& like) {
    Tensor tensor = get(name);
    if (!(tensor.shape() == like.shape()) || tensor.dtype() != like.dtype()) {
      fail(ErrorKind::checkpoint, "{}.h5: {} is {} {} but the model wants {} {}", file_, name, name_of(tensor.dtype()),
           tensor.shape().to_string(), name_of(like.dtype()), like.shape().to_string());
    }
    return tensor;
  }
  void require_all_used() const {
    for (const auto& [name, tensor] : tensors_) {
      if (std::find(used_.begin(), used_.end(), name) == used_.end()) {
        fail(ErrorKind::checkpoint, "{}.h5: {} is not in this model; the checkpoint is of another model", file_, name);
      }
    }
  }

 private:
  std::string file_;
  std::map<std::string, Tensor> tensors_;
  std::vector<std::string> used_;
};

CheckpointPart weights_part(const ParameterStore& store) {
  CheckpointPart model{"model", {}, {}};
  for (const ParameterStore::Entry& entry : store.entries()) model.tensors.push_back({entry.name, store.value(entry)});
  for (const ParameterStore::Buffer& buffer : store.buffers()) {
    model.tensors.push_back({"buffer." + buffer.name, buffer.value});
  }
  return model;
}

}  // namespace

void require_same_weights(const ParameterStore& store, Ranks& ranks) {
  if (ranks.size() == 1) return;
  std::string checksums;
  const auto add = [&](const Tensor& tensor) {
    const Tensor host = tensor.to(kCpu);
    checksums += checksum_of({static_cast<const std::byte*>(host.raw()), static_cast<size_t>(host.bytes())});
  };
  add(store.values());
  for (const ParameterStore::Buffer& buffer : store.buffers()) add(buffer.value);
  ranks.agree("checksums of the weights", checksum_of(std::as_bytes(std::span(checksums))),
              "one of them has computed something else, so this is no state to go on from; resume from the last "
              "checkpoint, and look for a faulty machine if it happens again");
}

std::filesystem::path save_training(const std::filesystem::path& checkpoints_dir, const TrainingState& training,
                                    const RunConfig& config, const Corpus& corpus, const TrainingMixture* mixture,
                                    const Cursor& cursor, const Machine& machine, Ranks& ranks) {
  require_same_weights(training.store, ranks);
  const auto write_files = [&](CheckpointFolder& folder) {
    if (ranks.is_root()) {
      folder.write(weights_part(training.store));
      if (training.average) folder.write({kAveragePart, training.average->save(), {}});
    }
    folder.write({moments_part_name(ranks.rank()), training.optimizer->save(), {}});
    if (training.state->rows() > 0) save_row_state(folder, *training.state, training.first_row);
  };
  nlohmann::json meta{
      {"version", kTrainingVersion}, {"step", training.step},
      {"tokens", training.tokens},   {"rows", config.data.rows},
      {"corpus", corpus.hash()},     {"cursor", cursor_to_json(cursor)},
      {"backend", machine.backend},  {"dtype", name_of(machine.dtype)},
      {"skipped", training.skipped}, {"skips_in_a_row", training.skips_in_a_row},
      {"logged", training.logged},   {"kernels", device_backend(machine.device.kind).kernel_choices()},
      {"ranks", ranks.size()},
  };
  if (!training.attention.empty()) {
    meta["attention"] = training.attention.to_text(attention_heading(machine.device));
  }
  if (!training.timed.empty()) meta["timed"] = training.timed;
  if (mixture != nullptr) meta["mix"] = mixture->hashes();
  return write_checkpoint(
      checkpoints_dir, training.step, ranks, write_files, meta,
      {{"config.yaml", dump_saved_config(config)}, {"tokenizer.txt", corpus.tokenizer().serialise()}});
}

CheckpointReader open_checkpoint(const std::filesystem::path& checkpoint, bool verify) {
  CheckpointReader reader = CheckpointReader::open(checkpoint, verify);
  const auto version = reader.meta().value("version", int64_t{0});
  if (version != kTrainingVersion) {
    fail(ErrorKind::checkpoint,
         "{}: has version {} of the checkpoint format, this program reads {}; use a matching quire",
         checkpoint.string(), version, kTrainingVersion);
  }
  return reader;
}

RunConfig checkpoint_config(const CheckpointReader& reader) {
  const std::string name = (reader.path() / "config.yaml").string();
  return read_config<RunConfig>(parse_yaml(reader.read_text("config.yaml"), name), name);
}

std::unique_ptr<Tokenizer> checkpoint_tokenizer(const CheckpointReader& reader) {
  return make_tokenizer(reader.read_text("tokenizer.txt"), (reader.path() / "tokenizer.txt").string(),
                        ErrorKind::checkpoint);
}

void load_weights(const CheckpointReader& reader, ParameterStore& store, Weights which) {
  PartLookup model(reader, "model");
  for (const ParameterStore::Entry& entry : store.entries()) {
    store.value(entry).copy_from(model.get(entry.name, store.value(entry)));
  }
  for (const ParameterStore::Buffer& buffer : store.buffers()) {
    buffer.value.copy_from(model.get("buffer." + buffer.name, buffer.value));
  }
  model.require_all_used();
  if (which == Weights::trained) {
    store.publish();
    return;
  }
  if (!reader.has_part(kAveragePart)) {
    fail(ErrorKind::config, "{}: holds no average of the weights; a run keeps one with optimizer.ema.decay",
         reader.path().string());
  }
  PartLookup average(reader, kAveragePart);
  for (const ParameterStore::Entry& entry : store.entries()) {
    store.value(entry).copy_from(average.get(entry.name, store.value(entry)));
  }
  average.require_all_used();
  store.publish();
}

Cursor load_training(const CheckpointReader& reader, TrainingState& training, bool drop_state) {
  const nlohmann::json& meta = reader.meta();
  load_weights(reader, training.store);
  load_moments(reader, training.store, *training.optimizer, training.parts->place().rank);
  if (training.average) {
    PartLookup average(reader, kAveragePart);
    training.average->load([&](const std::string& name, const Tensor& like) { return average.get(name, like); });
    average.require_all_used();
  }
  if (!drop_state && training.state->rows() > 0) load_row_state(reader, *training.state, training.first_row);
  if (device_backend(training.store.values().device().kind).use_kernel_choices(meta.value("kernels", ""))) {
    training.timed = meta.value("timed", "");
  } else {
    log_warn(
        "the checkpoint's choice of kernels is for another GPU or version of its libraries: results may differ in "
        "the last bits");
  }
  const std::string attention = meta.value("attention", "");
  const Device device = training.store.values().device();
  if (!attention.empty() && !training.attention.add(attention, attention_heading(device))) {
    log_warn(
        "the checkpoint's choice between cuDNN's attention and this program's was made on another GPU or with another "
        "version of cuDNN: it is made anew, and results may differ in the last bits");
  }
  training.step = meta.at("step").get<int64_t>();
  training.tokens = meta.at("tokens").get<int64_t>();
  training.skipped = meta.value("skipped", int64_t{0});
  training.skips_in_a_row = meta.value("skips_in_a_row", int64_t{0});
  training.logged = meta.value("logged", int64_t{0});
  return cursor_from_json(meta.at("cursor").get<std::string>());
}

}  // namespace quire
