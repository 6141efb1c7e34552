// Reads tokenizer.json, the form of the package `tokenizers` (Hugging Face).
#pragma once

#include <string_view>

#include "data/tokenizers/bpe_spec.h"

namespace quire {

// Reads the text of a tokenizer.json. Throws Error(data) that names whatever is wrong, or unknown to quire.
BpeSpec read_bpe_spec(std::string_view text);

}  // namespace quire
