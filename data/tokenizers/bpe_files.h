// Reads the files of BPE tokenizers for the options hf:, bpe: and tiktoken:.
#pragma once

#include <memory>
#include <string>

#include "data/tokenizers/tokenizer.h"

namespace quire {

// hf:PATH, a tokenizer.json or its folder. BOS and EOS are those of tokenizer_config.json beside it, else of
// config.json, else the token <|endoftext|>; without BOS, EOS stands in.
std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& argument, const TokenizerOptions& options);
// bpe:FOLDER with vocab.json and merges.txt, by the rules of GPT-2; BOS and EOS as above.
std::unique_ptr<Tokenizer> tokenizer_from_merges(const std::string& argument, const TokenizerOptions& options);
// tiktoken:FILE of lines "BASE64 RANK", by the rules of Llama 3; BOS and EOS follow the ranks, as there.
std::unique_ptr<Tokenizer> tokenizer_from_ranks(const std::string& argument, const TokenizerOptions& options);

// Returns the text of a tokenizer.json of the lines of a tiktoken file. Throws Error(data).
std::string json_of_ranks(std::string_view lines);
// Returns that of a vocab.json and a merges.txt.
std::string json_of_merges(std::string_view vocabulary, std::string_view merges);

// Makes the text of a byte-level tokenizer.json. `vocab` is an object and `merges` a list, as there; `pattern` may be
// empty for GPT-2's own. `specials` get the ids behind the vocabulary.
std::string byte_level_json(std::string vocab, std::string merges, const std::string& pattern, bool ignore_merges,
                            const std::vector<std::pair<int64_t, std::string>>& specials);

}  // namespace quire
