// Writes the loss of every target of an evaluation to a file that other programs compare and analyse.
#pragma once

#include <filesystem>
#include <string>

#include "data/tokenizers/tokenizer.h"
#include "trainers/evaluation/evaluation_result.h"

namespace quire {

// Throws Error(config) when something is at the path already, Error(disk) when its folder is not writable.
void require_new_losses_file(const std::filesystem::path& path);

// An HDF5 file, in the order of documents and positions:
//   /names     texts [D]
//   /offsets   i64 [D + 1]: targets of document d are offsets[d] to offsets[d + 1]
//   /position  i64, /target i32, /best i32, /nll f64, /recalled u8: one value per target
//   /text      u8: what the targets write, one after the other
//   /text_end  i64, one per target: where its text ends in /text
// Attributes of "/": split, and checkpoint as given. Error(disk) when it cannot be written.
void write_target_losses(const std::filesystem::path& path, const EvaluationResult& result, const Tokenizer& tokenizer,
                         const std::string& checkpoint);

}  // namespace quire
