// The thread of a SocketControl, and what it shares with calls.
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "core/files/map_guard.h"
#include "core/log.h"
#include "core/progress.h"
#include "core/ranks/missing_rank.h"
#include "core/ranks/processes/socket_control.h"

namespace quire {

namespace {

constexpr std::chrono::milliseconds kBeat{1000};
// The shortest interval between two messages about activity: operations of a small step follow each other faster.
constexpr std::chrono::milliseconds kOften{1};
constexpr std::chrono::milliseconds kTick{50};
constexpr std::chrono::seconds kNap{2};
// The others wait for rank 0 this much longer than rank 0 waits for them, so that rank 0 is the one that names a
// missing rank.
constexpr std::chrono::seconds kLonger{3};
// When rank 0 is silent, rank 1 reports, and the others end later by this time: the first rank that ends makes mpirun
// end all, and wakes a rank 0 that was stopped.
constexpr std::chrono::seconds kAfterRankOne{2};

}  // namespace

void SocketControl::serve() {
  // Frames that came together with the welcome are no longer in a socket, so poll() would not report them.
  for (bool first = true;; first = false) {
    try {
      const bool news = first || wait_for_news();
      const std::lock_guard lock(mutex_);
      if (stopping_) return;
      if (news) take_news();
      look();
    } catch (const std::exception& error) {
      const std::lock_guard lock(mutex_);
      if (failure_) end_process();  // after the end of this thread nobody would check any more
      fail_here(ErrorKind::communication, fmt::format("{}: {}", describe(activity_), error.what()));
    }
  }
}

// A process that was stopped for a while, as schedulers do with whole jobs, has not heard the others meanwhile. It may
// have been stopped anywhere, so this comes before every judgement about the others.
void SocketControl::forgive(Clock::time_point now) {
  const auto asleep = now - std::exchange(looked_, now);
  if (asleep < kNap) return;
  heard_root_ += asleep;
  if (coordinator_) coordinator_->forgive(asleep);
}

// Handles the loss of rank 0: rank 1 reports it, and tells rank 0 in case that it was only stopped.
void SocketControl::lose_root(const std::string& message) {
  root_is_lost_ = true;
  changed_.notify_all();
  if (stopping_ || failure_) return;
  fail_here(ErrorKind::communication, message);
  if (member_.rank == 1) report_failure();
}

void SocketControl::report_failure() {
  told_ = true;
  const LogVoice voice(0);
  log_error(failure_->message);
  post({FrameType::told});
}

// Waits, and returns whether something has arrived.
bool SocketControl::wait_for_news() {
  std::vector<pollfd> descriptors{{wake_, POLLIN, 0}};
  {
    const std::lock_guard lock(mutex_);
    for (const std::unique_ptr<FrameSocket>& peer : peers_) {
      if (!peer) continue;
      const short events = peer->has_unsent() ? POLLIN | POLLOUT : POLLIN;
      descriptors.push_back({peer->descriptor(), events, 0});
    }
  }
  const int ready = ::poll(descriptors.data(), descriptors.size(), static_cast<int>(kTick.count()));
  eventfd_t ignored = 0;
  if ((descriptors[0].revents & POLLIN) != 0) ::eventfd_read(wake_, &ignored);
  return ready > 0;
}

void SocketControl::take_news() {
  for (size_t peer = 0; peer < peers_.size(); ++peer) {
    if (!peers_[peer]) continue;
    peers_[peer]->flush();
    read_peer(peer);
  }
  deliver_outgoing();
  changed_.notify_all();
}

void SocketControl::read_peer(size_t peer) {
  std::vector<Frame> frames;
  peers_[peer]->receive(frames);
  const Clock::time_point now = Clock::now();
  forgive(now);
  for (const Frame& frame : frames) {
    if (coordinator_) {
      coordinator_->receive(static_cast<int>(peer), frame, now);
    } else {
      heard_root_ = now;
      accept(frame);
    }
  }
  if (!peers_[peer]->closed()) return;
  peers_[peer].reset();
  if (coordinator_) return coordinator_->lost(static_cast<int>(peer));
  lose_root(gone(root_activity_));
}

// Does what depends on time alone.
void SocketControl::look() {
  const Clock::time_point now = Clock::now();
  forgive(now);
  end_after_loss(now);
  if (now - said_ > kBeat) activity_is_news_ = true;
  say_news(now);
  Clock::duration patience = std::max<Clock::duration>(deadline_, kSilence) + kLonger;
  if (member_.rank > 1) patience += kAfterRankOne;
  if (coordinator_) {
    coordinator_->look(now, deadline_);
    deliver_outgoing();
  } else if (now - heard_root_ > patience && !failure_) {
    lose_root(does_not_answer(root_activity_, activity_, deadline_));
  }
  if (failure_ && now - failure_->at > options_.grace) end_process();
}

void SocketControl::say_news(Clock::time_point now) {
  if (!activity_is_news_ || now - said_ < kOften) return;
  said_ = now;
  activity_is_news_ = false;
  const auto progress = since_progress();
  const Frame frame{FrameType::activity, progress ? static_cast<uint64_t>(progress->count()) : kNoProgress,
                    packed_activity(activity_)};
  if (!coordinator_) return post(frame);
  coordinator_->receive(0, frame, now);
  for (const std::unique_ptr<FrameSocket>& peer : peers_) {
    if (peer) peer->send(frame);
  }
}

// Sends a frame to rank 0.
void SocketControl::post(const Frame& frame) {
  if (coordinator_) {
    coordinator_->receive(0, frame, Clock::now());
    deliver_outgoing();
  } else if (peers_[0]) {
    peers_[0]->send(frame);
    if (peers_[0]->has_unsent()) [[maybe_unused]]
      const int woken = ::eventfd_write(wake_, 1);
  }
}

void SocketControl::deliver_outgoing() {
  bool waits = false;
  for (Coordinator::Outgoing& outgoing :
       coordinator_ ? coordinator_->take_outgoing() : std::vector<Coordinator::Outgoing>()) {
    const auto to = static_cast<size_t>(outgoing.to);
    if (to == 0) {
      accept(outgoing.frame);
    } else if (peers_[to]) {
      peers_[to]->send(outgoing.frame);
      waits = waits || peers_[to]->has_unsent();
    }
  }
  if (waits) [[maybe_unused]]
    const int woken = ::eventfd_write(wake_, 1);
}

// Handles a frame from rank 0.
void SocketControl::accept(const Frame& frame) {
  switch (frame.type) {
    case FrameType::activity:
      root_activity_ = unpacked_activity(frame.text);
      return;
    case FrameType::result:
      result_ = frame;
      break;
    case FrameType::verdict:
      verdict_ = frame.number != 0;
      break;
    case FrameType::failed:
      fail_here(static_cast<ErrorKind>(frame.number), frame.text);
      break;
    case FrameType::told:
      told_ = true;
      break;
    default:
      fail_here(ErrorKind::internal, "rank 0 sent what no rank takes");
  }
  changed_.notify_all();
}

void SocketControl::fail_here(ErrorKind kind, const std::string& message) {
  if (failure_) return;
  failure_ = Failure{kind, message, Clock::now()};
  changed_.notify_all();
}

// Ends the run after a mapped file was truncated: the thread that read it waits for the end of the process, which no
// exception can bring about. Other ranks may read the same file.
void SocketControl::end_after_loss(Clock::time_point now) {
  const std::string* const lost = lost_map();
  if (lost == nullptr) return;
  if (!lost_at_) {
    lost_at_ = now;
    verdict_.reset();
    if (!root_is_lost_) post({FrameType::fail, static_cast<uint64_t>(ErrorKind::data), *lost});
  }
  if (!verdict_ && !root_is_lost_ && now - *lost_at_ < kVerdict) return;
  if (verdict_.value_or(!failure_)) {
    fail_here(ErrorKind::data, *lost);
    report_failure();
  }
  ::_exit(static_cast<int>(failure_->kind));
}

// Ends a program that hangs where no exception reaches it.
void SocketControl::end_process() {
  if (coordinator_ && !told_) report_failure();
  ::_exit(static_cast<int>(failure_->kind));
}

}  // namespace quire
