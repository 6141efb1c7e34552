#include "data/batches/make_sampler.h"

#include "core/check.h"
#include "data/batches/columns.h"
#include "data/batches/dealing.h"
#include "data/batches/windows.h"

namespace quire {

namespace {

void check_alignment(const BatchOptions& options) {
  if (options.data.subsequence % options.alignment != 0) {
    fail(ErrorKind::config, "data.subsequence: {} is not a multiple of {}, the period of the model's chunks and blocks",
         options.data.subsequence, options.alignment);
  }
}

}  // namespace

std::unique_ptr<Sampler> make_sampler(std::shared_ptr<const ReadingList> list, const BatchOptions& options) {
  QUIRE_CHECK(options.data.sampling == Sampling::documents, "sampler: a list is read by documents");
  check_alignment(options);
  return std::make_unique<Dealing>(std::move(list), options);
}

std::unique_ptr<Sampler> make_sampler(std::span<const int64_t> offsets, const BatchOptions& options) {
  check_alignment(options);
  switch (options.data.sampling) {
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
