#include "data/tokenizers/bpe_tokenizer.h"

#include <algorithm>
#include <charconv>

#include "core/check.h"
#include "data/tokenizers/bpe_spec_reader.h"
#include "data/tokenizers/word_cache.h"

namespace quire {

struct BpeTokenizer::Scratch {
  SplitPattern::Matcher matcher;
  BpeModel::Scratch model;
  WordCache words;
  std::vector<AddedTokenFinder::Part> parts;
  std::vector<AddedTokenFinder::Part> inner;
};

struct BpeTokenizer::Encoding {
  bool specials = false;
  bool follows = false;  // the text continues one that was encoded before
  Scratch& scratch;
  PreTokenizer::Words* words = nullptr;  // receives the words instead of the model
  std::vector<int32_t>& ids;
};

// Lends scratch to one call, so that any number of threads may encode.
class BpeTokenizer::Lease {
 public:
  explicit Lease(const BpeTokenizer& owner) : owner_(owner) {
    const std::lock_guard lock(owner.mutex_);
    if (!owner.idle_.empty()) {
      scratch_ = std::move(owner.idle_.back());
      owner.idle_.pop_back();
    }
    if (!scratch_) scratch_ = std::make_unique<Scratch>();
  }
  ~Lease() {
    const std::lock_guard lock(owner_.mutex_);
    owner_.idle_.push_back(std::move(scratch_));
  }
  Lease(const Lease&) = delete;
  Lease& operator=(const Lease&) = delete;
  Scratch& operator*() const { return *scratch_; }

 private:
  const BpeTokenizer& owner_;
  std::unique_ptr<Scratch> scratch_;
};

namespace {

AddedTokenFinder make_finder(const BpeSpec& spec, const TextNormalizer& normalizer, bool normalized) {
  std::vector<AddedToken> tokens;
  std::vector<std::string> contents;
  for (const AddedToken& token : spec.added) {
    if (token.normalized != normalized) continue;
    std::string content = token.content;
    if (normalized) normalizer.normalize(content, false);
    if (content.empty()) continue;
    tokens.push_back(token);
    contents.push_back(std::move(content));
  }
  return {std::move(tokens), contents};
}

// BOS and EOS are special, whatever the file says.
BpeSpec with_specials(BpeSpec spec, int32_t bos, int32_t eos) {
  for (const int32_t id : {bos, eos}) {
    if (id < 0 || id >= spec.vocabulary) {
      fail(ErrorKind::data, "BOS or EOS has id {}, but there are {} ids", id, spec.vocabulary);
    }
  }
  for (AddedToken& token : spec.added) token.special = token.special || token.id == bos || token.id == eos;
  return spec;
}

// Encodes words, through the cache.
class ModelWords : public PreTokenizer::Words {
 public:
  ModelWords(const BpeModel& model, const std::string& mark, BpeModel::Scratch& scratch, WordCache& cache,
             std::vector<int32_t>& ids)
      : model_(model), mark_(mark), scratch_(scratch), cache_(cache), ids_(ids) {}

  void add(std::string_view word, bool is_valid) override {
    while (!mark_.empty()) {
      size_t end = 0;
      while (word.substr(end).starts_with(mark_)) end += mark_.size();
      end = word.find(mark_, end);
      if (end == std::string_view::npos) break;
      add_one(word.substr(0, end), is_valid);
      word.remove_prefix(end);
    }
    add_one(word, is_valid);
  }

 private:
  void add_one(std::string_view word, bool is_valid) {
    if (!is_valid || word.size() > WordCache::kLongestWord) {
      return model_.encode_word(word, is_valid, scratch_, ids_);
    }
    std::span<const int32_t> known;
    if (cache_.find(word, known)) {
      ids_.insert(ids_.end(), known.begin(), known.end());
      return;
    }
    const size_t before = ids_.size();
    model_.encode_word(word, true, scratch_, ids_);
    cache_.put(word, std::span(ids_).subspan(before));
  }

  const BpeModel& model_;
  const std::string& mark_;
  BpeModel::Scratch& scratch_;
  WordCache& cache_;
  std::vector<int32_t>& ids_;
};

}  // namespace

BpeTokenizer::BpeTokenizer(std::string content, int32_t bos, int32_t eos)
    : json_(std::move(content)),
      spec_(with_specials(read_bpe_spec(json_), bos, eos)),
      bos_(bos),
      eos_(eos),
      normalizer_(spec_.normalizer),
      raw_tokens_(make_finder(spec_, normalizer_, false)),
      normalized_tokens_(make_finder(spec_, normalizer_, true)),
      pre_tokenizer_(spec_.pre_tokenizer),
      model_(spec_, bos, eos) {
  fill_texts();
  require_unreachable(bos_, "BOS");
  require_unreachable(eos_, "EOS");
  find_cutting();
  find_alterations();
}

BpeTokenizer::~BpeTokenizer() = default;

std::unique_ptr<Tokenizer> BpeTokenizer::from_payload(const std::string& payload) {
  int32_t bos = 0;
  int32_t eos = 0;
  const char* end = payload.data() + payload.size();
  const auto first = std::from_chars(payload.data(), end, bos);
  const char* space = first.ptr;
  if (first.ec != std::errc() || space == end || *space != ' ') {
    fail(ErrorKind::data, "the stored tokenizer is damaged: it does not begin with the ids of BOS and EOS");
  }
  const auto second = std::from_chars(space + 1, end, eos);
  if (second.ec != std::errc() || second.ptr == end || *second.ptr != '\n') {
    fail(ErrorKind::data, "the stored tokenizer is damaged: it does not begin with the ids of BOS and EOS");
  }
  return std::make_unique<BpeTokenizer>(std::string(second.ptr + 1, end), bos, eos);
}

std::string BpeTokenizer::serialise() const {
  return fmt::format("hf\n{} {}\n", bos_, eos_) + json_;
}

void BpeTokenizer::encode(std::string_view text, std::vector<int32_t>& ids) const {
  const Lease lease(*this);
  encode_all(text, {.scratch = *lease, .ids = ids});
}

void BpeTokenizer::encode_rest(std::string_view text, std::vector<int32_t>& ids) const {
  const Lease lease(*this);
  encode_all(text, {.follows = true, .scratch = *lease, .ids = ids});
}

void BpeTokenizer::encode_with_specials(std::string_view text, std::vector<int32_t>& ids) const {
  const Lease lease(*this);
  encode_all(text, {.specials = true, .scratch = *lease, .ids = ids});
}

void BpeTokenizer::cut(std::string_view text, PreTokenizer::Words& words) const {
  const Lease lease(*this);
  std::vector<int32_t> ids;
  encode_all(text, {.scratch = *lease, .words = &words, .ids = ids});
}

void BpeTokenizer::encode_all(std::string_view text, const Encoding& how) const {
  if (raw_tokens_.empty()) return encode_section(text, true, how);
  std::vector<AddedTokenFinder::Part>& parts = how.scratch.parts;
  parts.clear();
  raw_tokens_.split(text, how.specials, parts);
  for (const AddedTokenFinder::Part& part : parts) {
    if (part.id >= 0) {
      how.ids.push_back(part.id);
    } else {
      encode_section(text.substr(part.begin, part.end - part.begin), part.begin == 0, how);
    }
  }
}

// Encodes the text between two tokens.
void BpeTokenizer::encode_section(std::string_view text, bool is_first, const Encoding& how) const {
  const bool begins = is_first && !how.follows;
  ModelWords encoded(model_, word_mark_, how.scratch.model, how.scratch.words, how.ids);
  PreTokenizer::Words& words = how.words != nullptr ? *how.words : encoded;
  std::string buffer;
  if (!normalizer_.empty()) {
    buffer.assign(text);
    normalizer_.normalize(buffer, is_first && how.follows);
    text = buffer;
  }
  if (normalized_tokens_.empty()) return pre_tokenizer_.cut(text, begins, how.scratch.matcher, words);
  std::vector<AddedTokenFinder::Part>& parts = how.scratch.inner;
  parts.clear();
  normalized_tokens_.split(text, how.specials, parts);
  for (const AddedTokenFinder::Part& part : parts) {
    if (part.id >= 0) {
      how.ids.push_back(part.id);
    } else {
      pre_tokenizer_.cut(text.substr(part.begin, part.end - part.begin), begins && part.begin == 0, how.scratch.matcher,
                         words);
    }
  }
}

std::string BpeTokenizer::decode(std::span<const int32_t> ids) const {
  std::string text;
  for (const int32_t id : ids) {
    const std::string& own = text_of(id);
    if (id != bos_ && id != eos_) text += own;
  }
  return text;
}

std::string BpeTokenizer::decode_with_specials(std::span<const int32_t> ids) const {
  std::string text;
  bool first = spec_.drops_first_marks;
  for (const int32_t id : ids) {
    for (const char c : text_of(id)) {
      if (!first || c != ' ') text += c;
    }
    first = false;
  }
  const auto limit = static_cast<size_t>(spec_.stripped_spaces);
  return text.substr(std::min({limit, text.find_first_not_of(' '), text.size()}));
}

const std::string& BpeTokenizer::text_of(int32_t id) const {
  if (id < 0 || id >= spec_.vocabulary) fail(ErrorKind::data, "tokenizer hf: no token has id {}", id);
  return texts_[static_cast<size_t>(id)];
}

}  // namespace quire
