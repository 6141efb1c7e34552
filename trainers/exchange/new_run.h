// Makes a run directory from weights that quire has not trained.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>

#include "trainers/checkpoint/checkpoint.h"

namespace quire {

// A folder beside `output` that becomes it. While it is written it has another name, so that a failure or a kill leaves
// nothing that looks like a run; what exists is never replaced. Errors are Error(config) for an output that exists and
// Error(disk).
class NewFolder {
 public:
  explicit NewFolder(const std::filesystem::path& output);
  NewFolder(const NewFolder&) = delete;
  NewFolder& operator=(const NewFolder&) = delete;
  ~NewFolder();
  const std::filesystem::path& path() const { return partial_; }
  void finish();

  // Throws Error(config) when something is there already, or its name cannot be one.
  static void require_new(const std::filesystem::path& output);

 private:
  std::filesystem::path output_;
  std::filesystem::path partial_;
  bool finished_ = false;
};

// A run without history.
struct NewRun {
  int64_t step = 0;
  nlohmann::json meta;  // meta.json of the checkpoint
  std::string config;   // text of config.yaml
  std::string tokenizer;
};

// Writes config.yaml and a checkpoint, whose files `write_files` adds.
void write_new_run(const std::filesystem::path& output, const NewRun& run, const WriteFiles& write_files);

}  // namespace quire
