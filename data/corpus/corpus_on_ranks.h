// Opens one corpus on all ranks; one rank of each host verifies it.
#pragma once

#include "core/ranks/ranks.h"
#include "data/corpus/corpus.h"

namespace quire {

// Calls Corpus::open(path, verify) and split() for each of `splits` on one rank of each host. When that is done on all
// hosts, the other ranks open the file without reading it again. Every rank must call this, and all get the same error.
// Throws Error(communication) when corpora differ between hosts.
std::unique_ptr<Corpus> open_corpus_on_ranks(const std::filesystem::path& path, Verify verify,
                                             const std::vector<std::string>& splits, Ranks& ranks);

}  // namespace quire
