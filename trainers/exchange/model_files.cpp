#include "trainers/exchange/model_files.h"

#include <nlohmann/json.hpp>
#include <set>

#include "core/check.h"
#include "trainers/exchange/strict_json.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr int64_t kMaxIndexBytes = int64_t{6} << 20;
constexpr size_t kMaxShards = 1000;

bool is_there(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(fs::symlink_status(path, ignored));
}

// A file beside the index, so that no index leads out of its folder.
bool is_plain(const std::string& name) {
  return !name.empty() && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
}

[[noreturn]] void fail_without_weights(const fs::path& folder) {
  for (const char* other :
       {"pytorch_model.bin", "pytorch_model.bin.index.json", "tf_model.h5", "consolidated.00.pth"}) {
    if (!is_there(folder / other)) continue;
    fail(ErrorKind::data,
         "{}: has {} but no {}; only safetensors are read, and AutoModelForCausalLM's save_pretrained "
         "writes them",
         folder.string(), other, kSingle);
  }
  fail(ErrorKind::data, "{}: has neither {} nor {}; give a folder in Hugging Face layout", folder.string(), kSingle,
       kIndex);
}

// Returns the file of each tensor, by the index.
std::map<std::string, std::string> weight_map(const fs::path& index) {
  const nlohmann::json json = read_strict_json(index, kMaxIndexBytes);
  const std::string name = index.string();
  if (!json.is_object() || !json.contains("weight_map") || !json.at("weight_map").is_object()) {
    fail(ErrorKind::data, "{}: has no weight_map, an object of tensors and files", name);
  }
  std::map<std::string, std::string> map;
  for (const auto& [tensor, file] : json.at("weight_map").items()) {
    if (!file.is_string() || !is_plain(file.get_ref<const std::string&>())) {
      fail(ErrorKind::data, "{}: tensor {} lies in {}, which is no plain file name", name, tensor,
           shortened(file.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace)));
    }
    map[tensor] = file.get<std::string>();
  }
  return map;
}

}  // namespace

const SafetensorsFile& ModelFiles::add(const fs::path& path) {
  files_.push_back(std::make_unique<SafetensorsFile>(path));
  const SafetensorsFile& file = *files_.back();
  for (const StoredTensor& tensor : file.tensors()) {
    const auto [at, added] = tensors_.emplace(tensor.name, PlacedTensor{&file, &tensor});
    if (!added) {
      fail(ErrorKind::data, "{}: tensor {} is also in {}", path.string(), tensor.name,
           at->second.file->path().filename().string());
    }
  }
  return file;
}

void ModelFiles::open_shards(const fs::path& index) {
  const std::map<std::string, std::string> map = weight_map(index);
  std::set<std::string> names;
  for (const auto& [tensor, file] : map) names.insert(file);
  if (names.size() > kMaxShards) {
    fail(ErrorKind::data, "{}: names {} files, and at most {} are read", index.string(), names.size(), kMaxShards);
  }
  if (is_there(folder_ / kSingle) && !names.contains(kSingle)) {
    fail(ErrorKind::data, "{}: has {} beside {}, which does not name it; remove one of them", folder_.string(), kSingle,
         kIndex);
  }
  for (const std::string& name : names) {
    if (!is_there(folder_ / name)) {
      fail(ErrorKind::data, "{}: names {}, which is not there; is the download complete?", index.string(), name);
    }
    const SafetensorsFile& file = add(folder_ / name);
    for (const StoredTensor& tensor : file.tensors()) {
      const auto said = map.find(tensor.name);
      if (said != map.end() && said->second == name) continue;
      fail(ErrorKind::data, "{}: tensor {} lies in {}, and the index {}", index.string(), tensor.name, name,
           said == map.end() ? std::string("does not name it") : "says " + said->second);
    }
  }
  for (const auto& [tensor, file] : map) {
    if (!tensors_.contains(tensor)) fail(ErrorKind::data, "{}: {} has no tensor {}", index.string(), file, tensor);
  }
}

ModelFiles ModelFiles::open(const fs::path& folder) {
  ModelFiles files;
  files.folder_ = folder;
  if (is_there(folder / kIndex)) {
    files.open_shards(folder / kIndex);
  } else if (is_there(folder / kSingle)) {
    files.add(folder / kSingle);
  } else {
    fail_without_weights(folder);
  }
  return files;
}

const PlacedTensor* ModelFiles::find(std::string_view name) const {
  const auto found = tensors_.find(name);
  return found == tensors_.end() ? nullptr : &found->second;
}

}  // namespace quire
