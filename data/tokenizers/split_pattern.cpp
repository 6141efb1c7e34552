#include "data/tokenizers/split_pattern.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <algorithm>

#include "core/check.h"

namespace quire {

namespace {

// Limits of one match. A pattern may step back over a long word, byte by byte, for each of its alternatives.
constexpr size_t kMatchSteps = 1'000'000;
constexpr size_t kMatchStepsPerByte = 8;
constexpr uint32_t kHeapKib = 64 * 1024;
constexpr size_t kJitStack = size_t{8} << 20;

std::string pcre2_message(int code) {
  std::string text(256, '\0');
  pcre2_get_error_message(code, reinterpret_cast<PCRE2_UCHAR*>(text.data()), text.size());
  text.resize(text.find('\0'));
  return text;
}

}  // namespace

struct SplitPattern::Code {
  pcre2_compile_context* context = pcre2_compile_context_create(nullptr);
  pcre2_code* code = nullptr;
  bool jit = false;
  uint32_t look_behind = 0;
  ~Code() {
    pcre2_code_free(code);
    pcre2_compile_context_free(context);
  }
};

struct SplitPattern::Matcher::State {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(size_t{32} << 10, kJitStack, nullptr);
  State() {
    pcre2_set_heap_limit(context, kHeapKib);
    pcre2_jit_stack_assign(context, nullptr, stack);
  }
  ~State() {
    pcre2_match_data_free(data);
    pcre2_match_context_free(context);
    pcre2_jit_stack_free(stack);
  }
};

SplitPattern::Matcher::Matcher() : state_(std::make_unique<State>()) {}
SplitPattern::Matcher::~Matcher() = default;
SplitPattern::Matcher::Matcher(Matcher&&) noexcept = default;
SplitPattern::~SplitPattern() = default;
SplitPattern::SplitPattern(SplitPattern&&) noexcept = default;

SplitPattern::SplitPattern(const std::string& pattern) : code_(std::make_unique<Code>()), pattern_(pattern) {
  if (pattern.empty() || pattern.size() > kLongestPattern) {
    fail(ErrorKind::data, "a pattern of {} bytes; it may have 1 to {}", pattern.size(), kLongestPattern);
  }
  for (const char* known : {kGpt2Pattern, kLlama3Pattern, kQwen2Pattern, kQwen35Pattern}) {
    well_known_ = well_known_ || pattern == known;
  }
  const std::string translated = translated_pattern(pattern);
  pcre2_set_newline(code_->context, PCRE2_NEWLINE_LF);
  int error = 0;
  size_t offset = 0;
  constexpr uint32_t kOptions = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
  code_->code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(translated.data()), translated.size(), kOptions, &error,
                              &offset, code_->context);
  if (code_->code == nullptr) {
    fail(ErrorKind::data, "pattern \"{}\": {}", pattern, pcre2_message(error));
  }
  // Without machine code, where the processor or the system does not allow it, PCRE2 interprets the pattern.
  code_->jit = pcre2_jit_compile(code_->code, PCRE2_JIT_COMPLETE | PCRE2_JIT_PARTIAL_HARD) == 0;
  pcre2_pattern_info(code_->code, PCRE2_INFO_MAXLOOKBEHIND, &code_->look_behind);
}

bool SplitPattern::looks_back() const {
  return code_->look_behind > 0 || pattern_.find("\\A") != std::string::npos || pattern_.find('^') == 0 ||
         pattern_.find("\\G") != std::string::npos;
}

SplitPattern::Found SplitPattern::find(std::string_view text, size_t from, bool may_go_on, Matcher& matcher,
                                       Range& match) const {
  Matcher::State& state = *matcher.state_;
  const auto* subject = reinterpret_cast<PCRE2_SPTR>(text.data());
  const size_t steps = kMatchSteps + kMatchStepsPerByte * (text.size() - from);
  pcre2_set_match_limit(state.context, static_cast<uint32_t>(std::min<size_t>(steps, UINT32_MAX)));
  const uint32_t partial = may_go_on ? PCRE2_PARTIAL_HARD : 0;
  int count = code_->jit ? pcre2_jit_match(code_->code, subject, text.size(), from, partial, state.data, state.context)
                         : PCRE2_ERROR_JIT_STACKLIMIT;
  if (count == PCRE2_ERROR_JIT_STACKLIMIT) {  // the interpreter keeps its stack on the heap
    count = pcre2_match(code_->code, subject, text.size(), from, partial | PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT,
                        state.data, state.context);
  }
  if (count == PCRE2_ERROR_NOMATCH) return Found::nothing;
  if (count == PCRE2_ERROR_PARTIAL) return Found::partial;
  if (count < 0) {
    fail(ErrorKind::data, "pattern \"{}\" cannot be matched at byte {} of {}: {}", pattern_, from, text.size(),
         pcre2_message(count));
  }
  const size_t* ends = pcre2_get_ovector_pointer(state.data);
  match = {std::min(ends[0], ends[1]), ends[1]};
  return Found::match;
}

}  // namespace quire
