// The registry of tokenizers: one line per kind in make_tokenizer.cpp.
#pragma once

#include "core/error.h"
#include "data/tokenizers/tokenizer.h"

namespace quire {

// Makes the tokenizer of a text that serialise() wrote. A fault of the text is an Error of the given kind whose message
// begins with `where`.
std::unique_ptr<Tokenizer> make_tokenizer(const std::string& serialised, const std::string& where, ErrorKind kind);

// Makes the tokenizer of a --tokenizer option, "KIND" or "KIND:ARGUMENT".
std::unique_ptr<Tokenizer> parse_tokenizer_option(const std::string& option, const TokenizerOptions& options = {});

}  // namespace quire
