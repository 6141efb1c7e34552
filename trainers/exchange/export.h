// Exports a checkpoint: in Hugging Face layout where an architecture of transformers is this model, and otherwise as
// safetensors under quire's own names.
#pragma once

#include <filesystem>
#include <optional>
#include <string>

#include "trainers/checkpoint/training_checkpoint.h"
#include "trainers/exchange/stored_type.h"

namespace quire {

struct ExportOptions {
  std::filesystem::path output;  // must not exist
  RunConfig config;              // of the run, with overrides
  Weights weights = Weights::trained;
  std::optional<StoredType> type;    // none: that of the checkpoint
  std::optional<int64_t> positions;  // longest text that the model is meant for; none: data.subsequence
  bool own_names = false;            // also where an architecture would fit
};

struct ExportReport {
  std::string architecture;  // empty: quire's own names
  int64_t tensors = 0;
  int64_t bytes = 0;
  int64_t files = 0;
};

// Throws Error(config) for an output that exists and for options that have no meaning, Error(data) for values that the
// type cannot hold.
ExportReport export_checkpoint(const CheckpointReader& reader, const ExportOptions& options);

// Writes a folder with quire's own names (own_layout.h). Returns number and size of the tensors and files.
ExportReport export_own(const CheckpointReader& reader, const std::filesystem::path& folder);

}  // namespace quire
