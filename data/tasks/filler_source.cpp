#include "data/tasks/filler_source.h"

#include <filesystem>

#include "core/check.h"
#include "core/files/file_io.h"
#include "data/corpus/corpus_on_ranks.h"
#include "data/sources/utf8.h"

namespace quire {

namespace {

std::string read_filler_text(const std::string& name) {
  std::string text = read_text_file(name, {.kind = ErrorKind::data, .max_bytes = int64_t{1} << 30});
  if (text.starts_with(kByteOrderMark)) text.erase(0, kByteOrderMark.size());
  if (text.find_first_not_of(" \t\n\v\f\r") == std::string::npos) fail(ErrorKind::data, "{}: has no words", name);
  Utf8Validator validator;
  std::optional<int64_t> wrong = validator.feed(text);
  if (!wrong) wrong = validator.finish();
  if (wrong) fail(ErrorKind::data, "{}: invalid UTF-8 at byte {}; repair the file", name, *wrong);
  return text;
}

}  // namespace

FillerSource::FillerSource(const std::string& name, Ranks& ranks) : path_(name) {
  if (name.empty()) return;
  if (is_text(name)) {
    text_ = read_filler_text(name);
    return;
  }
  const size_t colon = name.rfind(':');
  if (colon != std::string::npos && !std::filesystem::exists(name)) {
    path_ = name.substr(0, colon);
    split_ = name.substr(colon + 1);
  }
  corpus_ = open_corpus_on_ranks(path_, Verify::once, {split_}, ranks);
}

std::unique_ptr<Filler> FillerSource::make(const Tokenizer& tokenizer) {
  if (!text_.empty()) {
    std::vector<int32_t> ids;
    tokenizer.encode(text_, ids);
    return make_text_filler(std::move(ids));
  }
  if (!corpus_) return make_prose_filler(tokenizer);
  if (corpus_->tokenizer().serialise() != tokenizer.serialise()) {
    fail(ErrorKind::data, "{}: its tokenizer ({}) is not the one of the documents ({}); prepare it with that one",
         path_, corpus_->tokenizer().kind(), tokenizer.kind());
  }
  return make_corpus_filler(corpus_->split(split_));
}

}  // namespace quire
