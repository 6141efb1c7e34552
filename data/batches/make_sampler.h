// The sampler that options.sampling names.
#pragma once

#include "data/batches/sampler.h"

namespace quire {

// By options.sampling. Offsets are those of Split::offsets(); they must outlive the sampler. Options that do not fit
// the split or one another are Error(config).
std::unique_ptr<Sampler> make_sampler(std::span<const int64_t> offsets, const BatchOptions& options);
// Of documents that do not lie one after the other; options.sampling must be documents.
std::unique_ptr<Sampler> make_sampler(std::shared_ptr<const ReadingList> list, const BatchOptions& options);

}  // namespace quire
