// Writes the datasets of a corpus file (data/corpus/corpus_writer.h) from documents whose tokens lie in a spool.
#pragma once

#include <filesystem>

#include "data/corpus/token_spool.h"
#include "data/corpus/written_documents.h"
#include "data/tokenizers/tokenizer.h"

namespace quire {

// The spool must have been flushed.
void write_corpus_datasets(const std::filesystem::path& file, const Tokenizer& tokenizer,
                           const WrittenDocuments& documents, const TokenSpool& spool);

}  // namespace quire
