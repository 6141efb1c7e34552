// The sampler that options.data.sampling names.
#pragma once

#include "data/batches/sampler.h"

namespace quire {

// Makes the sampler of options.data.sampling. Offsets are those of Split::offsets(); they must outlive the sampler.
// Options that do not fit the split or one another are Error(config).
std::unique_ptr<Sampler> make_sampler(std::span<const int64_t> offsets, const BatchOptions& options);
// Makes a sampler of documents from several sources; options.data.sampling must be documents.
std::unique_ptr<Sampler> make_sampler(std::shared_ptr<const ReadingList> list, const BatchOptions& options);

}  // namespace quire
