#include "data/tasks/question_task.h"

#include <algorithm>

#include "core/check.h"
#include "data/sources/utf8.h"

namespace quire {

namespace {

using Ids = std::vector<int32_t>;

// The questions that are drawn for a document before it is too short. Their shortest forms differ a little.
constexpr int64_t kDraws = 64;

class QuestionDocument : public AskedDocument {
 public:
  QuestionDocument(Question question, Ids ids, Ids answer, int64_t answer_begin, int64_t reserve,
                   std::vector<uint8_t> marks)
      : question_(std::move(question)),
        ids_(std::move(ids)),
        answer_(std::move(answer)),
        answer_begin_(answer_begin),
        reserve_(reserve),
        marks_(std::move(marks)) {}

  int64_t length() const override { return static_cast<int64_t>(ids_.size()); }
  void tokens(int64_t begin, int64_t count, int32_t* out) const override {
    std::copy_n(ids_.begin() + begin, count, out);
  }
  void marks(int64_t begin, int64_t count, uint8_t* out) const override {
    std::copy_n(marks_.begin() + begin, count, out);
  }
  int64_t answer_begin() const override { return answer_begin_; }
  const Ids& answer() const override { return answer_; }
  int64_t reserve() const override { return reserve_; }
  double score(std::string_view reply) const override { return score_of(question_, reply); }
  bool is_settled(std::string_view reply) const override { return quire::is_settled(question_, reply); }

 private:
  Question question_;
  Ids ids_;
  Ids answer_;
  int64_t answer_begin_;
  int64_t reserve_;
  std::vector<uint8_t> marks_;
};

// Copies tokens of the filler from `place` on, from the next whole character, and writes spaces in place of one that is
// cut at the end.
void copy_filler(FillerText& filler, int64_t place, std::span<int32_t> out, const Tokenizer& tokenizer) {
  if (out.empty()) return;
  constexpr size_t kLongest = 4;  // bytes of a character, so at most as many tokens
  Ids ids(out.size() + kLongest);
  filler.tokens(place, static_cast<int64_t>(ids.size()), ids.data());
  const auto first = std::find_if(ids.begin(), ids.begin() + kLongest, [&](int32_t id) {
    const std::string text = tokenizer.decode({&id, 1});
    return text.empty() || !is_within_character(text.front());
  });
  std::copy_n(first, out.size(), out.begin());
  Ids space;
  tokenizer.encode(" ", space);
  if (space.empty()) return;
  for (size_t end = out.size(); end > 0; --end) {
    const size_t begin = end - std::min(end, kLongest);
    if (unfinished_bytes(tokenizer.decode(out.subspan(begin, end - begin))) == 0) break;
    out[end - 1] = space.front();
  }
}

// Returns for each token of the answer whether part of it, other than a space, belongs to a reference.
std::vector<bool> recalled_tokens(const Question& question, const Ids& answer, const Tokenizer& tokenizer) {
  std::vector<bool> of_reference(question.answer.size());
  size_t at = 0;
  for (const std::string& reference : question.references) {
    at = question.answer.find(reference, at);
    QUIRE_CHECK(at != std::string::npos, "question: the answer lacks \"{}\"", reference);
    std::fill_n(of_reference.begin() + static_cast<std::ptrdiff_t>(at), reference.size(), true);
    at += reference.size();
  }
  std::vector<bool> recalled;
  size_t begin = 0;
  for (const int32_t id : answer) {
    const size_t end = std::min(begin + tokenizer.decode({&id, 1}).size(), of_reference.size());
    const auto first = of_reference.begin();
    recalled.push_back(std::find(first + static_cast<std::ptrdiff_t>(begin), first + static_cast<std::ptrdiff_t>(end),
                                 true) != first + static_cast<std::ptrdiff_t>(end));
    begin = end;
  }
  return recalled;
}

}  // namespace

// A question with the tokens of its prompt and of its answer.
struct QuestionTask::Fitted {
  Question question = {};
  Ids prompt = {};
  Ids answer = {};
  bool fits = false;
};

QuestionTask::QuestionTask(const TaskConfig& config, const TaskSources& sources, QuestionUse use,
                           const std::string& where)
    : AskingTask(config, sources.seed, sources.number),
      tokenizer_(sources.tokenizer),
      filler_(sources.filler),
      use_(use),
      kind_(make_question_kind(*config.task)) {
  QUIRE_CHECK(kind_ != nullptr, "question: there is no task {}", *config.task);
  require_text(where);
  const int64_t given = config.shortest.value_or(config.length);
  const int64_t min_length = shortest();
  if (given < min_length) {
    fail(ErrorKind::config, "{}: length {} is too short for task {}, which needs at least {} with this tokenizer",
         where, given, *config.task, min_length);
  }
}

void QuestionTask::require_text(const std::string& where) const {
  const std::string all = "abcdefghijklmnopqrstuvwxyz ABCDEFGHIJKLMNOPQRSTUVWXYZ 0123456789 -:;'(),.?=";
  Ids ids;
  tokenizer_.encode(all, ids);
  if (tokenizer_.decode_with_specials(ids) == all) return;
  fail(ErrorKind::config, "{}: the tokenizer ({}) cannot write the questions: \"{}\" becomes \"{}\"", where,
       tokenizer_.kind(), all, tokenizer_.decode(ids));
}

// Returns the number of positions from the prompt's last token on.
int64_t QuestionTask::tail(size_t answer) const {
  const auto needed = static_cast<int64_t>(answer);
  const int64_t kept = use_ == QuestionUse::asking ? std::max(kind_->reserve(), needed) : needed;
  return (kept + config_.align) / config_.align * config_.align;
}

QuestionTask::Fitted QuestionTask::written(const DocumentKey& key, const QuestionSize& size,
                                           BackgroundText& background) const {
  Fitted fitted{.question = kind_->make(key, size, background)};
  tokenizer_.encode(fitted.question.prompt, fitted.prompt);
  tokenizer_.encode_rest(fitted.question.answer, fitted.answer);
  const int64_t positions = static_cast<int64_t>(fitted.prompt.size()) + tail(fitted.answer.size());
  fitted.fits = positions <= size.length;
  return fitted;
}

// Returns the length of the longest of some questions in their shortest forms.
int64_t QuestionTask::shortest() const {
  constexpr int64_t kProbes = 16;
  int64_t longest = 0;
  for (int64_t index = 0; index < kProbes; ++index) {
    const std::unique_ptr<FillerText> text = filler_.open(key_of(index));
    BackgroundText background(*text, tokenizer_);
    const Fitted probe =
        written(key_of(index), {.length = 1000, .units = kind_->min_units(), .small = true}, background);
    longest = std::max(longest, static_cast<int64_t>(probe.prompt.size()) + tail(probe.answer.size()));
  }
  return (longest + config_.align - 1) / config_.align * config_.align;
}

// Returns the question with the most units that fit: a search between bounds, which guesses from the tokens of a unit
// and halves every fourth time.
QuestionTask::Fitted QuestionTask::fit(const DocumentKey& key, int64_t positions) const {
  const std::unique_ptr<FillerText> text = filler_.open(key);
  BackgroundText background(*text, tokenizer_);
  QuestionSize size{.length = positions, .units = kind_->min_units()};
  Fitted best = written(key, size, background);
  if (!best.fits) {
    size.small = true;
    best = written(key, size, background);
    if (!best.fits) return best;
  }
  const auto shortest = static_cast<double>(best.prompt.size());
  const int64_t first = size.units;
  int64_t low = first;               // fits
  std::optional<int64_t> high = {};  // does not
  size.units += 8;
  for (int64_t round = 1; !high || *high - low > 1; ++round) {
    Fitted tried = written(key, size, background);
    const double unit =
        std::max(0.25, (static_cast<double>(tried.prompt.size()) - shortest) / static_cast<double>(size.units - first));
    if (tried.fits) {
      low = size.units;
      best = std::move(tried);
    } else {
      high = size.units;
    }
    const auto left = positions - tail(best.answer.size()) - static_cast<int64_t>(best.prompt.size());
    size.units = std::max(low + 1, low + static_cast<int64_t>(static_cast<double>(left) / unit));
    if (!high) continue;
    size.units = round % 4 == 0 ? (low + *high) / 2 : std::min(size.units, *high - 1);
  }
  return best;
}

std::unique_ptr<AskedDocument> QuestionTask::ask(int64_t index) const {
  const int64_t length = positions(index);
  for (int64_t draw = 0; draw < kDraws; ++draw) {
    DocumentKey key = key_of(index);
    key.task += static_cast<uint32_t>(draw) * 0x9E3779B9U;
    Fitted fitted = fit(key, length);
    if (fitted.fits) return lay_out(std::move(fitted), key, length);
  }
  fail(ErrorKind::config, "task {}: none of {} questions has room in a document of {} tokens; use longer ones",
       *config_.task, kDraws, length);
}

std::unique_ptr<AskedDocument> QuestionTask::lay_out(Fitted fitted, const DocumentKey& key, int64_t positions) const {
  // The text between the facts is far from these places.
  const int64_t place = int64_t{1} << 32;
  const std::unique_ptr<FillerText> filler = filler_.open(key);
  const int64_t answer_begin =
      config_.align > 1 ? positions - tail(fitted.answer.size()) : static_cast<int64_t>(fitted.prompt.size());
  const int64_t before = answer_begin - static_cast<int64_t>(fitted.prompt.size());
  Ids ids(static_cast<size_t>(positions - 1));
  copy_filler(*filler, place, std::span(ids).first(static_cast<size_t>(before)), tokenizer_);
  const auto end = std::copy(fitted.answer.begin(), fitted.answer.end(),
                             std::copy(fitted.prompt.begin(), fitted.prompt.end(), ids.begin() + before));
  copy_filler(*filler, place + before, {end, ids.end()}, tokenizer_);

  std::vector<uint8_t> marks(ids.size() + 1);
  const int64_t first = config_.loss == TaskLoss::answer ? answer_begin : 0;
  std::fill(marks.begin() + first, marks.begin() + (end - ids.begin()), kCounted);
  const std::vector<bool> recalled = recalled_tokens(fitted.question, fitted.answer, tokenizer_);
  for (size_t i = 0; i < recalled.size(); ++i) {
    if (recalled[i]) marks[static_cast<size_t>(answer_begin) + i] |= kRecalled;
  }
  const int64_t reserve = std::max(kind_->reserve(), static_cast<int64_t>(fitted.answer.size()));
  return std::make_unique<QuestionDocument>(std::move(fitted.question), std::move(ids), std::move(fitted.answer),
                                            answer_begin, reserve, std::move(marks));
}

}  // namespace quire
