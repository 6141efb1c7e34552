#include "data/tokenizers/pre_tokenizer.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

namespace {

using Step = PreTokenizerStep;
using StepKind = PreTokenizerStep::Kind;

std::string pattern_of(const Step& step) {
  if (step.kind == StepKind::digits) return step.individual ? "\\p{N}" : "\\p{N}+";
  return step.pattern;
}

// A match, or the text between two.
struct SplitPart {
  size_t begin = 0;
  size_t end = 0;
  bool is_match = false;
};

struct MatchList {
  std::vector<SplitPattern::Range> ranges;
  SplitPattern::Found last = SplitPattern::Found::nothing;
};

// Returns the matches behind `from`, up to the first empty one.
MatchList matches_of(const SplitPattern& pattern, std::string_view subject, size_t from, bool may_go_on,
                     SplitPattern::Matcher& matcher) {
  MatchList list;
  SplitPattern::Range match;
  while ((list.last = pattern.find(subject, from, may_go_on, matcher, match)) == SplitPattern::Found::match) {
    if (match.end == match.begin) break;
    list.ranges.push_back(match);
    from = match.end;
  }
  return list;
}

// Returns the end of a match where a text can be cut: what follows does not change the matches before it, nor does it
// when nothing follows, as a pattern may look ahead.
size_t settled_match(const SplitPattern& pattern, std::string_view subject, SplitPattern::Matcher& matcher) {
  constexpr size_t kTail = 4096;
  constexpr size_t kTries = 8;
  size_t tail = subject.size() - std::min(subject.size() / 2, kTail);
  while (tail > 0 && (static_cast<uint8_t>(subject[tail]) & 0xC0U) == 0x80U) --tail;
  // These matches have not looked at anything behind `tail`.
  const MatchList before = matches_of(pattern, subject.substr(0, tail), 0, true, matcher);
  const size_t from = before.ranges.empty() ? 0 : before.ranges.back().end;
  const MatchList behind = matches_of(pattern, subject, from, true, matcher);
  const size_t count = behind.ranges.size();
  for (size_t last = count; last > 0 && last + kTries > count; --last) {
    const size_t end = behind.ranges[last - 1].end;
    if (end < tail) break;
    const MatchList alone = matches_of(pattern, subject.substr(0, end), from, false, matcher);
    const auto same = [](const SplitPattern::Range& a, const SplitPattern::Range& b) {
      return a.begin == b.begin && a.end == b.end;
    };
    if (alone.ranges.size() == last &&
        std::equal(alone.ranges.begin(), alone.ranges.end(), behind.ranges.begin(), same)) {
      return end;
    }
  }
  return 0;
}

size_t character_end(std::string_view text, size_t at) {
  ++at;
  while (at < text.size() && (static_cast<uint8_t>(text[at]) & 0xC0U) == 0x80U) ++at;
  return at;
}

// An empty match cuts the text where it is; the next one is looked for a character further.
std::vector<SplitPart> split_parts(const SplitPattern& pattern, std::string_view subject, bool invert,
                                   SplitPattern::Matcher& matcher) {
  std::vector<SplitPart> parts;
  size_t done = 0;
  SplitPattern::Range match;
  for (size_t from = 0; from <= subject.size();) {
    if (pattern.find(subject, from, false, matcher, match) != SplitPattern::Found::match) break;
    if (match.begin > done) parts.push_back({done, match.begin, invert});
    parts.push_back({match.begin, match.end, !invert});
    done = match.end;
    from = match.end > match.begin ? match.end : character_end(subject, match.end);
  }
  if (done < subject.size()) parts.push_back({done, subject.size(), invert});
  return parts;
}

// Joins parts as the behaviour says, in the way of the package `tokenizers`.
std::vector<SplitPart> joined_parts(std::vector<SplitPart> parts, SplitBehavior behavior) {
  std::vector<SplitPart> joined;
  const bool backward = behavior == SplitBehavior::merged_with_next;
  if (backward) std::reverse(parts.begin(), parts.end());
  bool previous = false;
  for (const SplitPart& part : parts) {
    bool joins = part.is_match && !previous;
    if (behavior == SplitBehavior::contiguous) joins = part.is_match == previous;
    previous = part.is_match;
    if (behavior == SplitBehavior::removed && part.is_match) continue;
    if (behavior == SplitBehavior::removed || !joins || joined.empty()) {
      joined.push_back(part);
    } else {
      joined.back().begin = std::min(joined.back().begin, part.begin);
      joined.back().end = std::max(joined.back().end, part.end);
    }
  }
  if (backward) std::reverse(joined.begin(), joined.end());
  return joined;
}

}  // namespace

PreTokenizer::PreTokenizer(std::vector<Step> steps) : steps_(std::move(steps)) {
  for (const Step& step : steps_) {
    const std::string pattern = pattern_of(step);
    const bool needs_one = step.kind == StepKind::split || step.kind == StepKind::digits || !pattern.empty();
    patterns_.push_back(needs_one ? std::make_unique<SplitPattern>(pattern) : nullptr);
    const char* how = nullptr;
    if (step.kind == StepKind::metaspace) how = "it writes spaces otherwise";
    if (step.kind == StepKind::byte_level && step.prepend != Step::Prepend::never) how = "it adds a space in front";
    if (step.kind == StepKind::split && step.behavior == SplitBehavior::removed) how = "it may remove text";
    if (how != nullptr) alterations_ += (alterations_.empty() ? "" : ", ") + std::string(how);
  }
  cutting_ = find_cutting();
}

void PreTokenizer::cut(std::string_view text, bool begins, SplitPattern::Matcher& matcher, Words& words) const {
  std::string buffer;
  const PatternSubject subject = pattern_subject(text, buffer);
  run(0, {text, subject.text, subject.is_valid, begins}, {matcher, words});
}

void PreTokenizer::run(size_t step, const Piece& piece, const Run& run_of) const {
  if (piece.text.empty()) return;
  if (step == steps_.size()) return run_of.words.add(piece.text, piece.is_valid);
  switch (steps_[step].kind) {
    case StepKind::split:
    case StepKind::digits:
      return split(step, piece, run_of);
    case StepKind::byte_level:
      return byte_level(step, piece, run_of);
    case StepKind::metaspace:
      return metaspace(step, piece, run_of);
  }
}

void PreTokenizer::split(size_t step, const Piece& piece, const Run& run_of) const {
  const Step& how = steps_[step];
  if (how.behavior == SplitBehavior::isolated) return isolate(step, piece, run_of);
  const std::vector<SplitPart> parts = split_parts(*patterns_[step], piece.subject, how.invert, run_of.matcher);
  for (const SplitPart& part : joined_parts(parts, how.behavior)) {
    const size_t count = part.end - part.begin;
    run(step + 1,
        {piece.text.substr(part.begin, count), piece.subject.substr(part.begin, count), piece.is_valid,
         piece.begins && part.begin == 0},
        run_of);
  }
}

void PreTokenizer::isolate(size_t step, const Piece& piece, const Run& run_of) const {
  const SplitPattern& pattern = *patterns_[step];
  const bool ends_here = step + 1 == steps_.size();
  const auto pass = [&](size_t begin, size_t end) {
    if (begin == end) return;
    const std::string_view text = piece.text.substr(begin, end - begin);
    if (ends_here) return run_of.words.add(text, piece.is_valid);
    run(step + 1, {text, piece.subject.substr(begin, end - begin), piece.is_valid, piece.begins && begin == 0}, run_of);
  };
  size_t done = 0;
  SplitPattern::Range match;
  for (size_t from = 0; from < piece.subject.size();) {
    if (pattern.find(piece.subject, from, false, run_of.matcher, match) != SplitPattern::Found::match) break;
    pass(done, match.begin);
    pass(match.begin, match.end);
    done = match.end;
    from = match.end > match.begin ? match.end : character_end(piece.subject, match.end);
  }
  pass(done, piece.text.size());
}

void PreTokenizer::byte_level(size_t step, const Piece& piece, const Run& run_of) const {
  std::string text;
  std::string subject;
  Piece whole = piece;
  if (steps_[step].prepend != Step::Prepend::never && piece.text.front() != ' ') {
    text.append(1, ' ').append(piece.text);
    subject.append(1, ' ').append(piece.subject);
    whole.text = text;
    whole.subject = subject;
  }
  if (patterns_[step] != nullptr) return isolate(step, whole, run_of);
  run(step + 1, whole, run_of);
}

void PreTokenizer::metaspace(size_t step, const Piece& piece, const Run& run_of) const {
  const Step& how = steps_[step];
  std::string text;
  for (const char c : piece.text) {
    if (c == ' ') {
      text += how.mark;
    } else {
      text += c;
    }
  }
  const bool prepends = how.prepend == Step::Prepend::always || (how.prepend == Step::Prepend::first && piece.begins);
  if (prepends && !text.starts_with(how.mark)) text.insert(0, how.mark);
  size_t begin = 0;
  while (begin < text.size()) {
    const size_t next = how.splits ? text.find(how.mark, begin + 1) : std::string::npos;
    const size_t end = std::min(next, text.size());
    const std::string_view part = std::string_view(text).substr(begin, end - begin);
    std::string buffer;
    const PatternSubject subject = pattern_subject(part, buffer);
    run(step + 1, {part, subject.text, subject.is_valid, piece.begins && begin == 0}, run_of);
    begin = end;
  }
}

PreTokenizer::Cutting PreTokenizer::find_cutting() const {
  size_t at = 0;
  while (at < steps_.size() && steps_[at].kind == StepKind::digits) ++at;
  // A word of a piece without a pattern may be cut where its model says (BpeTokenizer).
  if (at == steps_.size()) return steps_.empty() ? Cutting::at_spaces : Cutting::nowhere;
  const Step& step = steps_[at];
  if (step.kind == StepKind::metaspace) return steps_.size() == 1 ? Cutting::at_spaces : Cutting::nowhere;
  if (patterns_[at] == nullptr) return Cutting::nowhere;
  bool prepends = false;
  for (const Step& one : steps_) prepends = prepends || one.prepend != Step::Prepend::never;
  const SplitPattern& pattern = *patterns_[at];
  if (pattern.is_well_known() && step.behavior == SplitBehavior::isolated) {
    return prepends ? Cutting::at_spaces : Cutting::between_lines;
  }
  const bool keeps_parts = step.behavior == SplitBehavior::isolated || step.behavior == SplitBehavior::removed;
  return keeps_parts && !prepends && !pattern.looks_back() ? Cutting::where_settled : Cutting::nowhere;
}

size_t PreTokenizer::settled(std::string_view text, SplitPattern::Matcher& matcher) const {
  std::string buffer;
  return settled_from(0, pattern_subject(text, buffer).text, matcher);
}

size_t PreTokenizer::settled_from(size_t step, std::string_view subject, SplitPattern::Matcher& matcher) const {
  const SplitPattern& pattern = *patterns_[step];
  if (steps_[step].kind != StepKind::digits) return settled_match(pattern, subject, matcher);
  const MatchList digits = matches_of(pattern, subject, 0, true, matcher);
  const size_t done = digits.ranges.empty() ? 0 : digits.ranges.back().end;
  // Behind the last digit lies one piece, which the next step cuts, however long it becomes.
  if (digits.last == SplitPattern::Found::partial || done == subject.size()) return done;
  return done + settled_from(step + 1, subject.substr(done), matcher);
}

}  // namespace quire
