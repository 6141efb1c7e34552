#include "core/ranks/processes/coordinator.h"

#include <algorithm>
#include <cstring>

#include "core/check.h"
#include "core/ranks/missing_rank.h"
#include "core/ranks/ranks.h"

namespace quire {

namespace {

// Ranks that wait in a collective reach their deadlines within this time of each other; a rank that is silent meanwhile
// is the cause.
constexpr std::chrono::seconds kAlike{3};

std::string packed_texts(const std::vector<std::string>& texts) {
  std::string packed;
  for (const std::string& text : texts) {
    const uint64_t size = text.size();
    packed.append(reinterpret_cast<const char*>(&size), sizeof(size));
    packed += text;
  }
  return packed;
}

RankCall unpacked_call(const std::string& text) {
  RankCall call;
  QUIRE_CHECK(text.size() >= 1 + sizeof(call.from), "ranks: a call of {} bytes", text.size());
  call.what = text[0];
  std::memcpy(&call.from, text.data() + 1, sizeof(call.from));
  call.text = text.substr(1 + sizeof(call.from));
  return call;
}

}  // namespace

std::string packed_call(const RankCall& call) {
  std::string text(1, call.what);
  text.append(reinterpret_cast<const char*>(&call.from), sizeof(call.from));
  return text + call.text;
}

std::vector<std::string> unpacked_texts(const std::string& texts) {
  std::vector<std::string> all;
  for (size_t at = 0; at < texts.size();) {
    uint64_t size = 0;
    QUIRE_CHECK(texts.size() - at >= sizeof(size), "ranks: a text that is cut off");
    std::memcpy(&size, texts.data() + at, sizeof(size));
    at += sizeof(size);
    QUIRE_CHECK(texts.size() - at >= size, "ranks: a text that is cut off");
    all.push_back(texts.substr(at, size));
    at += size;
  }
  return all;
}

std::string packed_activity(const RankActivity& activity) {
  return packed_texts({fmt::format("{} {}", activity.rank, activity.step), activity.host, activity.operation});
}

RankActivity unpacked_activity(const std::string& text) {
  const std::vector<std::string> parts = unpacked_texts(text);
  QUIRE_CHECK(parts.size() == 3, "ranks: an activity of {} parts", parts.size());
  RankActivity activity{.rank = 0, .host = parts[1], .step = 0, .operation = parts[2]};
  std::sscanf(parts[0].c_str(), "%d %ld", &activity.rank, &activity.step);
  return activity;
}

Coordinator::Coordinator(std::vector<RankActivity> ranks, Time now) : first_came_(now) {
  for (RankActivity& activity : ranks)
    ranks_.push_back({.activity = std::move(activity), .heard = now, .went_on = {}, .text = {}, .overdue = {}});
}

void Coordinator::receive(int from, const Frame& frame, Time now) {
  Rank& rank = ranks_[static_cast<size_t>(from)];
  rank.heard = now;
  switch (frame.type) {
    case FrameType::activity:
      rank.activity = unpacked_activity(frame.text);
      if (frame.number != kNoProgress) {
        const Time then = now - std::chrono::milliseconds(frame.number);
        rank.went_on = std::max(rank.went_on.value_or(then), then);
      }
      return;
    case FrameType::call:
      return take_call(from, frame, now);
    case FrameType::fail:
      return judge(from, frame);
    case FrameType::told:
      return take_told(from);
    case FrameType::overdue:
      rank.overdue = frame.number == 0 ? std::nullopt : std::optional(frame.number);
      if (rank.overdue && !first_overdue_) first_overdue_ = now;
      if (std::none_of(ranks_.begin(), ranks_.end(), [](const Rank& one) { return one.overdue; })) {
        first_overdue_.reset();
      }
      return;
    case FrameType::ended:
      rank.ended = true;
      if (here_ > 0) fail(ErrorKind::communication, ended_while_awaited(rank.activity, someone_here()));
      return;
    default:
      return fail(ErrorKind::internal, fmt::format("{}: it sent what rank 0 does not take", describe(rank.activity)));
  }
}

void Coordinator::lost(int rank) {
  const Rank& one = ranks_[static_cast<size_t>(rank)];
  if (!one.ended) fail(ErrorKind::communication, gone(one.activity));
  reporter_is_lost_ = reporter_is_lost_ || reporter_ == rank;
}

// A rank that reports a failure without having been told to has given up rank 0, which was stopped.
void Coordinator::take_told(int rank) {
  told_ = true;
  fail(ErrorKind::communication, gone(ranks_[static_cast<size_t>(rank)].activity));
  send_all({FrameType::told});
}

void Coordinator::take_call(int from, const Frame& frame, Time now) {
  if (failure_) return;
  Rank& rank = ranks_[static_cast<size_t>(from)];
  RankCall call = unpacked_call(frame.text);
  if (here_ == 0) {
    first_came_ = now;
    call_ = {call.what, call.from, ""};
  }
  if (rank.here || frame.number != calls_ + 1 || call.what != call_.what || call.from != call_.from) {
    return fail(ErrorKind::internal,
                fmt::format("{}: it makes another call than the other ranks", describe(rank.activity)));
  }
  rank.here = true;
  rank.text = std::move(call.text);
  const auto ended = std::find_if(ranks_.begin(), ranks_.end(), [](const Rank& one) { return one.ended; });
  if (ended != ranks_.end()) {
    return fail(ErrorKind::communication, ended_while_awaited(ended->activity, rank.activity));
  }
  if (++here_ == static_cast<int>(ranks_.size())) finish_call();
}

void Coordinator::finish_call() {
  std::vector<std::string> texts;
  for (Rank& rank : ranks_) {
    texts.push_back(std::move(rank.text));
    rank.here = false;
  }
  here_ = 0;
  Frame result{FrameType::result, ++calls_};
  if (call_.what == 'b') {
    result.text = texts[static_cast<size_t>(call_.from)];
  } else if (call_.what == 'g') {
    result.text = packed_texts(texts);
  } else {
    std::vector<double> values = unpacked<double>(texts[0]);
    const bool alike = std::all_of(texts.begin(), texts.end(),
                                   [&](const std::string& text) { return text.size() == texts[0].size(); });
    if (!alike) return fail(ErrorKind::internal, "ranks: they give different numbers of values");
    Control::reduce_in_order(call_.what == 's' ? Control::Reduction::sum : Control::Reduction::max, texts, values);
    result.text = packed<double>(values);
  }
  send_all(result);
}

// When all ranks have the same error, one of them is told to report it; a rank whose error came second reports nothing.
void Coordinator::judge(int rank, const Frame& error) {
  fail(static_cast<ErrorKind>(error.number), error.text);
  const bool reports = !told_ && !reporter_ && failure_->text == error.text;
  if (reports) reporter_ = rank;
  outgoing_.push_back({rank, {FrameType::verdict, reports ? 1U : 0U}});
}

void Coordinator::fail(ErrorKind kind, const std::string& message) {
  if (failure_) return;
  failure_ = Frame{FrameType::failed, static_cast<uint64_t>(kind), message};
  send_all(*failure_);
}

void Coordinator::send_all(const Frame& frame) {
  for (size_t rank = 0; rank < ranks_.size(); ++rank) outgoing_.push_back({static_cast<int>(rank), frame});
}

const RankActivity& Coordinator::someone_here() const {
  const auto found = std::find_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.here; });
  return (found == ranks_.end() ? ranks_[0] : *found).activity;
}

void Coordinator::look(Time now, std::chrono::milliseconds deadline) {
  if (failure_) return;
  const std::chrono::milliseconds patience = std::max<std::chrono::milliseconds>(deadline, kSilence);
  for (const Rank& rank : ranks_) {
    if (now - rank.heard > patience && !rank.ended) {
      return fail(ErrorKind::communication, does_not_answer(rank.activity, rank.activity, deadline));
    }
  }
  if (here_ > 0) {
    const auto absent = std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& rank) {
      return !rank.here && now - first_came_ > deadline && (!rank.went_on || now - *rank.went_on > patience);
    });
    if (absent != ranks_.end()) {
      return fail(ErrorKind::communication, does_not_answer(absent->activity, someone_here(), deadline));
    }
  }
  // Other ranks that wait should have said so by now.
  if (first_overdue_ && now - *first_overdue_ > kAlike) name_missing(deadline, now);
}

void Coordinator::forgive(std::chrono::steady_clock::duration asleep) {
  for (Rank& rank : ranks_) {
    rank.heard += asleep;
    if (rank.went_on) *rank.went_on += asleep;
  }
  first_came_ += asleep;
  if (first_overdue_) *first_overdue_ += asleep;
}

void Coordinator::name_missing(std::chrono::milliseconds deadline, Time now) {
  const auto waits = std::find_if(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.overdue; });
  auto missing =
      std::find_if(ranks_.begin(), ranks_.end(), [&](const Rank& rank) { return now - rank.heard > kAlike; });
  if (missing == ranks_.end()) {
    missing = std::min_element(ranks_.begin(), ranks_.end(), [](const Rank& a, const Rank& b) {
      return a.overdue.value_or(0) < b.overdue.value_or(0);  // a rank without `overdue` does not wait
    });
  }
  if (missing->overdue == waits->overdue) {
    return fail(
        ErrorKind::communication,
        fmt::format("{}: all ranks have been in the same sum for {:.3g} s (run.rank_timeout) and their hosts do "
                    "not exchange it; the network between them may be cut",
                    describe(waits->activity), static_cast<double>(deadline.count()) / 1000));
  }
  fail(ErrorKind::communication, does_not_answer(missing->activity, waits->activity, deadline));
}

bool Coordinator::all_have_ended() const {
  return std::all_of(ranks_.begin(), ranks_.end(), [](const Rank& rank) { return rank.ended; });
}

}  // namespace quire
