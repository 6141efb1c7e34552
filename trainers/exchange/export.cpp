#include "trainers/exchange/export.h"

#include <map>

#include "core/bfloat16.h"
#include "core/check.h"
#include "core/files/file_io.h"
#include "layers/parameters/parameter_store.h"
#include "trainers/exchange/export_config.h"
#include "trainers/exchange/export_tokenizer.h"
#include "trainers/exchange/name_table.h"
#include "trainers/exchange/new_run.h"
#include "trainers/exchange/own_layout.h"
#include "trainers/exchange/safetensors_writer.h"
#include "trainers/setup/model.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

constexpr int64_t kShardBytes = 5'000'000'000;

struct Place {
  std::string tensor;
  TensorCut cut;
};

// The tensors of a folder, and where each parameter lies in them.
struct Target {
  std::map<std::string, Place> places;           // by parameter
  std::map<std::string, PlannedTensor> tensors;  // by name
  std::map<std::string, int64_t> parts;          // of each tensor that are not written yet
};

Target plan_target(const HfModel& model, const ParameterStore& store, StoredType type) {
  const NameTable& table = name_table(model.layout);
  Target target;
  for (const ParameterStore::Entry& entry : store.entries()) {
    const std::optional<ForeignName> found = foreign_name(table, entry.name, model.head_size);
    QUIRE_CHECK(found.has_value(), "export: {} has no name in this layout", entry.name);
    const std::string name = found->prefixed ? table.prefix + found->name : found->name;
    target.places[entry.name] = {name, found->cut};
    target.tensors[name] = {name, type, found->cut.shape_of(entry.shape)};
    ++target.parts[name];
  }
  return target;
}

// The files of the weights, and which file has a tensor.
class Shards {
 public:
  Shards(const fs::path& folder, const Target& target) : folder_(folder) {
    std::vector<PlannedTensor> all;
    for (const auto& [name, tensor] : target.tensors) all.push_back(tensor);
    const auto shards = in_shards(all, kShardBytes);
    for (size_t i = 0; i < shards.size(); ++i) {
      names_.push_back(shards.size() == 1 ? std::string("model.safetensors")
                                          : fmt::format("model-{:05}-of-{:05}.safetensors", i + 1, shards.size()));
      writers_.push_back(std::make_unique<SafetensorsWriter>(folder / names_.back(), shards[i]));
      for (const PlannedTensor& tensor : shards[i]) {
        file_of_[tensor.name] = i;
        bytes_ += tensor.bytes();
      }
    }
  }
  void write(const std::string& tensor, std::span<const std::byte> bytes) {
    writers_[file_of_.at(tensor)]->write(tensor, 0, bytes);
  }
  void finish() {
    for (const auto& writer : writers_) writer->finish();
    if (writers_.size() == 1) return;
    nlohmann::ordered_json index{{"metadata", {{"total_size", bytes_}}}, {"weight_map", nlohmann::json::object()}};
    for (const auto& [tensor, file] : file_of_) index["weight_map"][tensor] = names_[file];
    write_file_durably(folder_ / "model.safetensors.index.json", index.dump(2) + "\n");
  }
  int64_t bytes() const { return bytes_; }
  int64_t files() const { return static_cast<int64_t>(names_.size()); }

 private:
  fs::path folder_;
  std::vector<std::string> names_;
  std::vector<std::unique_ptr<SafetensorsWriter>> writers_;
  std::map<std::string, size_t> file_of_;
  int64_t bytes_ = 0;
};

template <typename T>
void write_values(const Place& place, const Tensor& values, StoredType type, std::span<std::byte> bytes) {
  const std::span<const T> all(static_cast<const T*>(values.raw()), static_cast<size_t>(values.numel()));
  write_cut(place.cut, values.shape(), all, type, bytes, place.tensor);
}

void write_parameter(const Place& place, const Tensor& values, StoredType type, std::span<std::byte> bytes) {
  if (values.dtype() == DType::f64) return write_values<double>(place, values, type, bytes);
  if (values.dtype() == DType::bf16) return write_values<bfloat16>(place, values, type, bytes);
  write_values<float>(place, values, type, bytes);
}

// Parameters of one tensor lie near each other in a checkpoint, so few tensors are unfinished at a time.
void write_weights(const CheckpointReader& reader, const std::string& part, Target& target, Shards& shards) {
  std::map<std::string, std::vector<std::byte>> unfinished;
  reader.visit_part(part, [&](const NamedTensor& stored) {
    const auto found = target.places.find(stored.name);
    if (found == target.places.end()) {
      fail(ErrorKind::checkpoint, "{}: {} is not in this model; the checkpoint is of another model",
           reader.path().string(), stored.name);
    }
    const std::string& name = found->second.tensor;
    const PlannedTensor& planned = target.tensors.at(name);
    std::vector<std::byte>& bytes = unfinished[name];
    bytes.resize(static_cast<size_t>(planned.bytes()));
    write_parameter(found->second, stored.tensor, planned.type, bytes);
    if (--target.parts.at(name) > 0) return;
    shards.write(name, bytes);
    unfinished.erase(name);
  });
  for (const auto& [name, left] : target.parts) {
    if (left > 0) fail(ErrorKind::checkpoint, "{}: has no weights for {}", reader.path().string(), name);
  }
}

std::string torch_name(StoredType type) {
  if (type == StoredType::f64) return "float64";
  if (type == StoredType::f16) return "float16";
  return type == StoredType::bf16 ? "bfloat16" : "float32";
}

void write_hf_config(const ExportedConfig& exported, StoredType type, const fs::path& folder) {
  nlohmann::ordered_json json = exported.json;
  // Versions 4 and 5 of transformers have different names for it.
  json["torch_dtype"] = torch_name(type);
  json["dtype"] = torch_name(type);
  write_file_durably(folder / "config.json", json.dump(2) + "\n");
}

// Returns the type in which the checkpoint has the embeddings: imported weights may be bf16.
StoredType type_of_weights(const CheckpointReader& reader, const std::string& part) {
  StoredType type = StoredType::f32;
  reader.visit_part(part, [&](const NamedTensor& stored) {
    if (stored.name == "embedding.weight") type = stored_type_of(stored.tensor.dtype());
  });
  return type;
}

}  // namespace

ExportReport export_checkpoint(const CheckpointReader& reader, const ExportOptions& options) {
  NewFolder::require_new(options.output);
  const std::unique_ptr<Tokenizer> tokenizer = checkpoint_tokenizer(reader);
  const ModelConfig& model = options.config.model;
  const int64_t vocabulary = model.vocabulary.value_or(tokenizer->vocabulary_size());
  std::optional<ExportedConfig> exported;
  if (!options.own_names) {
    const int64_t positions = options.positions.value_or(options.config.data.subsequence);
    exported = express(model, vocabulary, positions, {tokenizer->bos_id(), tokenizer->eos_id()});
  }
  NewFolder folder(options.output);
  ExportReport report;
  if (!exported) {
    if (options.type) fail(ErrorKind::config, "--dtype: quire's own names keep every value bit for bit; leave it out");
    if (options.weights == Weights::average) {
      fail(ErrorKind::config, "--ema: quire's own names keep trained and average weights; leave it out");
    }
    report = export_own(reader, folder.path());
  } else {
    ParameterStore store;  // names and shapes only
    const Network network(store, model, tokenizer->vocabulary_size(), DType::f32);
    const std::string part = part_of(options.weights);
    const StoredType type = options.type ? *options.type : type_of_weights(reader, part);
    Target target = plan_target(exported->model, store, type);
    Shards shards(folder.path(), target);
    write_weights(reader, part, target, shards);
    shards.finish();
    write_hf_config(*exported, type, folder.path());
    export_tokenizer(reader.read_text("tokenizer.txt"), tokenizer->bos_id(), tokenizer->eos_id(), folder.path());
    report = {exported->model.type, static_cast<int64_t>(target.tensors.size()), shards.bytes(), shards.files()};
  }
  folder.finish();
  return report;
}

}  // namespace quire
