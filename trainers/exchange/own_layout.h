// A checkpoint as safetensors files under quire's own names, for models that no other program has:
//
//   quire.json               format, version, step, the parts in order, and meta.json of the checkpoint
//   PART.safetensors         the tensors of a part: model, ema, optimizer, state-BEGIN-END. Its texts stand in
//                            __metadata__ as "text.NAME"
//   rows-BEGIN-END.safetensors  what the rows BEGIN, ..., END - 1 carry: each tensor is [rows, ...]
//   config.yaml, tokenizer.txt  as in the checkpoint
#pragma once

#include <filesystem>
#include <string>

#include "trainers/checkpoint/training_checkpoint.h"

namespace quire {

inline constexpr const char* kOwnFile = "quire.json";

// Says whether a folder was exported under quire's own names.
bool is_own_layout(const std::filesystem::path& folder);

// The part of a checkpoint that has these weights.
std::string part_of(Weights weights);

struct OwnImport {
  int64_t step = 0;
  int64_t tensors = 0;
  int64_t bytes = 0;
};
// Makes a run of an exported folder, whose checkpoint equals the exported one bit for bit. Throws Error(data) for a
// folder that is damaged or not complete, Error(config) for an output that exists.
OwnImport import_own(const std::filesystem::path& folder, const std::filesystem::path& output);

}  // namespace quire
