#include "data/batches/batch_source.h"
#include "data/batches/make_sampler.h"

namespace quire {

BatchStream::~BatchStream() = default;

BatchSource::BatchSource(Corpus& corpus, const std::string& split, const BatchOptions& options)
    : sampler_(make_sampler(corpus.split(split).offsets(), options)),
      packer_(corpus.split(split), corpus.tokenizer(), options),
      cursor_(sampler_->start()) {}

BatchSource::BatchSource(Corpus& corpus, const std::string& split, const BatchOptions& options, Cursor resume_from)
    : BatchSource(corpus, split, options) {
  sampler_->check(resume_from);
  cursor_ = std::move(resume_from);
}

BatchSource::BatchSource(std::shared_ptr<const Mixture> mixture, const Tokenizer& tokenizer,
                         const BatchOptions& options)
    : sampler_(make_sampler(mixture, options)),
      mixture_(std::move(mixture)),
      packer_(*mixture_, tokenizer, options),
      cursor_(sampler_->start()) {}

BatchSource::BatchSource(std::shared_ptr<const Mixture> mixture, const Tokenizer& tokenizer,
                         const BatchOptions& options, Cursor resume_from)
    : BatchSource(std::move(mixture), tokenizer, options) {
  sampler_->check(resume_from);
  cursor_ = std::move(resume_from);
}

std::optional<CursoredBatch> BatchSource::next() {
  if (sampler_->done(cursor_)) return std::nullopt;
  const std::vector<Piece> pieces = sampler_->step(cursor_);
  return CursoredBatch{packer_.pack(pieces), cursor_};
}

}  // namespace quire
