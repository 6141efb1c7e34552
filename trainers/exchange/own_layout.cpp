#include "trainers/exchange/own_layout.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/json.h"
#include "data/tokenizers/make_tokenizer.h"
#include "trainers/checkpoint/checkpoint_meta.h"
#include "trainers/exchange/new_run.h"
#include "trainers/exchange/own_parts.h"
#include "trainers/exchange/strict_json.h"
#include "trainers/setup/model.h"
#include "trainers/setup/previous_form.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

constexpr const char* kFormat = "quire export";
constexpr int64_t kVersion = 1;
constexpr int64_t kMaxOwnBytes = int64_t{1} << 20;
constexpr size_t kMaxParts = 10000;

// The content of quire.json.
struct Contents {
  int64_t step = 0;
  std::vector<std::string> parts;
  nlohmann::json meta;
};

bool is_part_name(const std::string& name) {
  return !name.empty() && name.size() < 100 && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-';
  });
}

Contents read_contents(const fs::path& folder) {
  const fs::path path = folder / kOwnFile;
  const nlohmann::json json = read_strict_json(path, kMaxOwnBytes);
  Contents contents;
  try {
    if (json.at("format") != kFormat || json_integer(json.at("version")) != kVersion) {
      fail(ErrorKind::data, "{}: is not version {} of an export of quire", path.string(), kVersion);
    }
    contents.step = json_integer(json.at("step"));
    for (const nlohmann::json& part : json.at("parts")) contents.parts.push_back(part.get<std::string>());
    contents.meta = json.at("meta");
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::data, "{}: a value is missing or of the wrong type; export the run again", path.string());
  }
  std::vector<std::string> sorted = contents.parts;
  std::sort(sorted.begin(), sorted.end());
  const bool good = sorted.size() <= kMaxParts && std::all_of(sorted.begin(), sorted.end(), is_part_name) &&
                    std::adjacent_find(sorted.begin(), sorted.end()) == sorted.end() &&
                    std::binary_search(sorted.begin(), sorted.end(), "model");
  if (!good) fail(ErrorKind::data, "{}: its parts are not those of a checkpoint", path.string());
  CheckpointMeta::from_json(contents.meta, contents.step, path.string());
  return contents;
}

// The weights are those of the model of config.yaml: compared before anything is written.
void require_weights(const OwnPart& model, const RunConfig& config, const Tokenizer& tokenizer) {
  ParameterStore store;  // names and shapes only
  const Network network(store, config.model, tokenizer.vocabulary_size(), DType::f32);
  size_t expected = 0;
  const auto require = [&](const std::string& name, const Shape& shape) {
    ++expected;
    const StoredTensor* found = model.file().find(name);
    if (found == nullptr) fail(ErrorKind::data, "{}: tensor {} is missing", model.file().path().string(), name);
    if (!std::equal(found->shape.begin(), found->shape.end(), shape.begin(), shape.end())) {
      fail(ErrorKind::data, "{}: tensor {} is [{}], and config.yaml makes it {}", model.file().path().string(), name,
           fmt::join(found->shape, ", "), shape.to_string());
    }
  };
  for (const ParameterStore::Entry& entry : store.entries()) require(entry.name, entry.shape);
  for (const ParameterStore::Buffer& buffer : store.buffers()) require("buffer." + buffer.name, buffer.value.shape());
  if (model.file().tensors().size() == expected) return;
  for (const StoredTensor& tensor : model.file().tensors()) {
    const auto is_known = [&](const auto& one) {
      return one.name == tensor.name || "buffer." + one.name == tensor.name;
    };
    if (std::any_of(store.entries().begin(), store.entries().end(), is_known)) continue;
    if (std::any_of(store.buffers().begin(), store.buffers().end(), is_known)) continue;
    fail(ErrorKind::data, "{}: tensor {} is left over: the model of config.yaml has none of this name",
         model.file().path().string(), tensor.name);
  }
}

}  // namespace

bool is_own_layout(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kOwnFile, ignored);
}

std::string part_of(Weights weights) {
  return weights == Weights::average ? "ema" : "model";
}

OwnImport import_own(const fs::path& folder, const fs::path& output) {
  const Contents contents = read_contents(folder);
  const auto text_of = [&](const char* name) {
    return read_text_file(folder / name, {.kind = ErrorKind::data, .max_bytes = int64_t{256} << 20});
  };
  const std::string text = text_of("config.yaml");
  const RunConfig config = read_written_config(text, (folder / "config.yaml").string());
  const std::string tokenizer = text_of("tokenizer.txt");
  const auto made = make_tokenizer(tokenizer, (folder / "tokenizer.txt").string(), ErrorKind::data);
  std::vector<std::unique_ptr<OwnPart>> parts;
  for (const std::string& part : contents.parts) parts.push_back(std::make_unique<OwnPart>(folder, part));
  OwnImport imported{.step = contents.step};
  for (const auto& part : parts) {
    if (part->name() == "model") require_weights(*part, config, *made);
    imported.tensors += static_cast<int64_t>(part->file().tensors().size());
    for (const StoredTensor& tensor : part->file().tensors()) imported.bytes += tensor.bytes();
  }
  write_new_run(output, {contents.step, contents.meta, text, tokenizer}, [&](CheckpointFolder& checkpoint) {
    for (const auto& part : parts) part->write(checkpoint);
  });
  return imported;
}

}  // namespace quire
