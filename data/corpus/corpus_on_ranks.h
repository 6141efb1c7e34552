// One corpus on all ranks, which one rank of each host verifies.
#pragma once

#include "core/ranks/ranks.h"
#include "data/corpus/corpus.h"

namespace quire {

// On one rank of each host this is Corpus::open(path, verify), with split() of each of `splits`. When that is done on
// all hosts, the other ranks open the file without reading it again. Every rank calls this and has the same error;
// corpora that differ between hosts are Error(communication).
std::unique_ptr<Corpus> open_corpus_on_ranks(const std::filesystem::path& path, Verify verify,
                                             const std::vector<std::string>& splits, Ranks& ranks);

}  // namespace quire
