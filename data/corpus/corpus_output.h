// Where a corpus may be written: what is there already must be a corpus.
#pragma once

#include <filesystem>

namespace quire {

// Error(config) for a folder, link, FIFO or device, for a file that quire prepare did not write, and without `force`
// for anything that exists. The same holds for OUTPUT.manifest and for what a killed quire prepare left behind. A
// corpus counts as one, even damaged, by its manifest and the first bytes of HDF5.
void require_corpus_output(const std::filesystem::path& output, bool force);

}  // namespace quire
