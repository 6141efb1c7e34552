// Writes the tokenizer of a checkpoint beside an exported model.
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>

namespace quire {

// serialised: the text of tokenizer.txt. That file is always written; tokenizer.json with tokenizer_config.json, or
// tokenizer.model, where other programs know the kind.
void export_tokenizer(const std::string& serialised, int32_t bos, int32_t eos, const std::filesystem::path& folder);

}  // namespace quire
