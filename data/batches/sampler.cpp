#include "data/batches/sampler.h"

namespace quire {

Sampler::~Sampler() = default;

}  // namespace quire
