// Imports a model in Hugging Face layout as a run directory: config.yaml, and a checkpoint of step 0 with the weights.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trainers/setup/config.h"

namespace quire {

struct ImportOptions {
  std::filesystem::path folder;
  std::filesystem::path output;               // must not exist
  std::optional<std::string> tokenizer = {};  // as of quire prepare; none: that of the folder, else bare ids
  std::optional<int64_t> length = {};         // of text, for rotary scaling that depends on it
  std::vector<std::string> ignored = {};      // keys of config.json that change nothing
  std::vector<std::string> overrides = {};    // key.path=value of the run's configuration
};

struct ImportReport {
  std::string architecture;    // quire: of a folder under quire's own names; then only tensors and bytes are given
  std::string tokenizer = {};  // its kind
  bool tokenizer_was_found = false;
  int64_t vocabulary = 0;
  int64_t tokenizer_ids = 0;
  int64_t parameters = 0;
  int64_t tensors = 0;    // read
  int64_t left_out = 0;   // buffers that are no weights
  int64_t bytes = 0;      // of the weights in the folder
  int64_t positions = 0;  // the longest text that the model was made for
  int64_t subsequence = 0;
};

// Throws Error(data) that names the file, key or tensor for whatever is missing, left over, misshapen or not supported,
// before anything is written; Error(config) for an output that exists. A failure leaves nothing behind.
ImportReport import_model(const ImportOptions& options);

}  // namespace quire
