#include "data/sampler.h"

#include "core/check.h"
#include "data/columns.h"
#include "data/dealing.h"
#include "data/windows.h"

namespace quire {

Sampler::~Sampler() = default;

std::unique_ptr<Sampler> make_sampler(std::span<const int64_t> offsets, const BatchOptions& options) {
  if (options.subsequence % options.alignment != 0) {
    fail(ErrorKind::config, "data.subsequence: {} is not a multiple of {}, the period of the model's chunks and blocks",
         options.subsequence, options.alignment);
  }
  switch (options.sampling) {
    case Sampling::windows:
      return std::make_unique<Windows>(offsets, options);
    case Sampling::columns:
      return std::make_unique<Columns>(offsets, options);
    case Sampling::documents:
      break;
  }
  return std::make_unique<Dealing>(offsets, options);
}

}  // namespace quire
