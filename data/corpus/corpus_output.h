// Checks where a corpus may be written: only another corpus may be overwritten.
#pragma once

#include <filesystem>

namespace quire {

// Throws Error(config) for a folder, link, FIFO or device, for a file that quire prepare did not write, and without
// `force` for anything that exists. The same holds for OUTPUT.manifest and for files that a killed quire prepare left
// behind. A file counts as a corpus, even a damaged one, by its manifest and the first bytes of HDF5.
void require_corpus_output(const std::filesystem::path& output, bool force);

}  // namespace quire
