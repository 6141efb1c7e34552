// Makes the sampler that options.sampling names.
#pragma once

#include "data/batches/sampler.h"

namespace quire {

// Offsets are those of Split::offsets(); they must outlive the sampler. Throws Error(config) when options do not fit
// the split or one another.
std::unique_ptr<Sampler> make_sampler(std::span<const int64_t> offsets, const BatchOptions& options);
// Makes a sampler of documents from several sources; options.sampling must be documents.
std::unique_ptr<Sampler> make_sampler(std::shared_ptr<const ReadingList> list, const BatchOptions& options);

}  // namespace quire
