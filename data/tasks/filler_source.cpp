#include "data/tasks/filler_source.h"

#include <filesystem>

#include "core/check.h"
#include "data/corpus/corpus_on_ranks.h"

namespace quire {

FillerSource::FillerSource(const std::string& name, Ranks& ranks) : path_(name) {
  if (name.empty()) return;
  const size_t colon = name.rfind(':');
  if (colon != std::string::npos && !std::filesystem::exists(name)) {
    path_ = name.substr(0, colon);
    split_ = name.substr(colon + 1);
  }
  corpus_ = open_corpus_on_ranks(path_, Verify::once, {split_}, ranks);
}

std::unique_ptr<Filler> FillerSource::make(const Tokenizer& tokenizer) {
  if (!corpus_) return make_prose_filler(tokenizer);
  if (corpus_->tokenizer().serialise() != tokenizer.serialise()) {
    fail(ErrorKind::data, "{}: its tokenizer ({}) is not the one of the documents ({}); prepare it with that one",
         path_, corpus_->tokenizer().kind(), tokenizer.kind());
  }
  return make_corpus_filler(corpus_->split(split_));
}

}  // namespace quire
