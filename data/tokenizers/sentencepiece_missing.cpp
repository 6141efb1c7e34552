#include "core/check.h"
#include "data/tokenizers/sentencepiece_model.h"

namespace quire {

namespace {

[[noreturn]] void fail_missing() {
  fail(ErrorKind::config,
       "this quire was built without SentencePiece; apt-get install libsentencepiece-dev, configure and build again");
}

}  // namespace

std::unique_ptr<SentencePieceModel> SentencePieceModel::parse(std::string_view /*bytes*/) {
  fail_missing();
}

std::string train_sentencepiece(const SentencePieceTraining& /*options*/,
                                const std::function<const std::string*()>& /*next_sentence*/) {
  fail_missing();
}

}  // namespace quire
