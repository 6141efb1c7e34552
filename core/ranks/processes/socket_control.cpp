#include "core/ranks/processes/socket_control.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/awake_time.h"
#include "core/background_thread.h"
#include "core/check.h"
#include "core/files/map_guard.h"
#include "core/log.h"
#include "core/ranks/ranks.h"

namespace quire {

namespace {

constexpr std::chrono::seconds kGoodbye{10};
constexpr std::chrono::seconds kUntilTold{3};

std::vector<RankActivity> places(const Member& member, const std::vector<Rendezvous::Peer>& peers) {
  std::vector<RankActivity> all;
  for (const Rendezvous::Peer& peer : peers) {
    const auto rank = static_cast<int>(all.size());
    all.push_back({.rank = rank, .host = rank == 0 ? member.host : peer.host, .step = 0, .operation = ""});
  }
  return all;
}

}  // namespace

SocketControl::SocketControl(const Member& member, std::vector<Rendezvous::Peer> peers,
                             const SocketControlOptions& options)
    : member_(member), options_(options), deadline_(options.deadline) {
  coordinator_.emplace(places(member, peers), Clock::now());
  for (Rendezvous::Peer& peer : peers) peers_.push_back(std::move(peer.socket));
  start();
}

SocketControl::SocketControl(const Member& member, std::unique_ptr<FrameSocket> root,
                             const SocketControlOptions& options)
    : member_(member), options_(options), deadline_(options.deadline) {
  peers_.push_back(std::move(root));
  root_activity_.host = "its host";
  start();
}

void SocketControl::start() {
  activity_.rank = member_.rank;
  activity_.host = member_.host;
  looked_ = heard_root_ = said_ = Clock::now();
  wake_ = ::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (wake_ < 0) quire::fail(ErrorKind::communication, "ranks: the system has no descriptor left");
  thread_ = background_thread([this] { serve(); });
  leave_map_losses_to(wake_);
}

SocketControl::~SocketControl() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  leave_map_losses_to(-1);
  [[maybe_unused]] const int woken = ::eventfd_write(wake_, 1);
  thread_.join();
  ::close(wake_);
}

void SocketControl::throw_failure() const {
  throw SharedError(failure_->kind, failure_->message);
}

std::string SocketControl::call(const RankCall& call) {
  std::unique_lock lock(mutex_);
  if (failure_) throw_failure();
  const uint64_t number = ++calls_;
  post({FrameType::call, number, packed_call(call)});
  changed_.wait(lock, [&] { return failure_ || (result_ && result_->number == number); });
  if (!result_ || result_->number != number) throw_failure();
  return std::exchange(result_, std::nullopt)->text;
}

std::vector<std::string> SocketControl::gather(const std::string& mine) {
  return unpacked_texts(call({'g', 0, mine}));
}

std::string SocketControl::broadcast(const std::string& text, int from) {
  return call({'b', from, from == member_.rank ? text : ""});
}

void SocketControl::barrier() {
  broadcast("", 0);
}

void SocketControl::reduce(Reduction reduction, std::span<double> values) {
  const std::string reduced = call({reduction == Reduction::sum ? 's' : 'm', 0, packed<double>(values)});
  const std::vector<double> all = unpacked<double>(reduced);
  std::copy(all.begin(), all.end(), values.begin());
}

void SocketControl::set_deadline(std::chrono::milliseconds deadline) {
  const std::lock_guard lock(mutex_);
  deadline_ = deadline;
}

std::chrono::milliseconds SocketControl::deadline() const {
  const std::lock_guard lock(mutex_);
  return deadline_;
}

void SocketControl::set_activity(const RankActivity& activity) {
  const std::lock_guard lock(mutex_);
  const bool begins = activity.step != activity_.step || activity.operation != activity_.operation;
  // Between operations a rank keeps the last one as its activity.
  if (!begins || activity.operation.empty()) return;
  activity_ = activity;
  activity_is_news_ = true;
  say_news(Clock::now());
}

RankActivity SocketControl::activity() const {
  const std::lock_guard lock(mutex_);
  return activity_;
}

bool SocketControl::fail(ErrorKind kind, const std::string& message) {
  std::unique_lock lock(mutex_);
  forgive(Clock::now());
  if (!root_is_lost_) {
    verdict_.reset();
    post({FrameType::fail, static_cast<uint64_t>(kind), message});
    wait_awake(changed_, lock, kVerdict, [&] { return verdict_.has_value() || root_is_lost_; });
    fail_here(kind, message);
    if (verdict_) return reports_ = *verdict_;
    // Rank 0 does not answer; it is told below.
    if (!root_is_lost_ && !told_) return reports_ = failure_->message == message;
  }
  return reports_ = false;
}

void SocketControl::check() const {
  const std::lock_guard lock(mutex_);
  if (failure_) throw_failure();
}

void SocketControl::overdue(int64_t begun) {
  const std::lock_guard lock(mutex_);
  post({FrameType::overdue, static_cast<uint64_t>(begun), ""});
}

std::optional<int> SocketControl::leave() {
  std::unique_lock lock(mutex_);
  if (!failure_) {
    post({FrameType::ended});
    // Frames that were sent arrive even after this process has ended. Rank 0 serves the others until all have ended.
    wait_awake(changed_, lock, kGoodbye, [&] {
      return failure_ || (coordinator_ ? coordinator_->all_have_ended() : !peers_[0] || !peers_[0]->has_unsent());
    });
    if (!failure_) {
      stopping_ = true;
      return std::nullopt;
    }
  }
  if (reports_) post({FrameType::told});
  wait_awake(changed_, lock, kUntilTold,
             [&] { return told_ || root_is_lost_ || (coordinator_ && coordinator_->is_unreported()); });
  if (coordinator_ && !told_) report_failure();
  return static_cast<int>(failure_->kind);
}

}  // namespace quire
