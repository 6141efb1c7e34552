#include "core/ranks/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <new>
#include <utility>

#include "core/check.h"

namespace quire {

namespace {

class LocalControl : public Control {
 public:
  int rank() const override { return 0; }
  int size() const override { return 1; }
  std::string host() const override {
    std::array<char, 256> name{};
    return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "localhost";
  }
  std::vector<std::string> gather(const std::string& mine) override { return {mine}; }
  std::string broadcast(const std::string& text, int) override { return text; }
  void barrier() override {}
  void set_deadline(std::chrono::milliseconds) override {}
  void set_activity(const RankActivity&) override {}
  bool fail(ErrorKind, const std::string&) override { return true; }
};

class LocalCollectives : public Collectives {
 public:
  void all_reduce(const Tensor&) override { ++finished_; }
  void reduce_scatter(const Tensor&, const PartBounds&) override { ++finished_; }
  void all_gather(const Tensor&, const PartBounds&) override { ++finished_; }
  void wait() override {}
  int64_t finished() const override { return finished_; }

 private:
  int64_t finished_ = 0;
};

// How work ended on a rank, as a text: '-' it had none, 'd' it is done, or 'e', the kind of the error and its message.
std::string outcome_of(bool mine, const std::function<void()>& work) {
  if (!mine) return "-";
  const auto error = [](ErrorKind kind, const std::string& message) {
    return fmt::format("e{}{}", static_cast<int>(kind), message);
  };
  try {
    work();
    return "d";
  } catch (const SharedError&) {
    throw;  // the others have it already
  } catch (const Error& caught) {
    return error(caught.kind(), caught.what());
  } catch (const std::bad_alloc&) {
    return error(ErrorKind::memory, "out of memory");
  } catch (const std::exception& caught) {
    return error(ErrorKind::internal, caught.what());
  }
}

thread_local Ranks* current_ranks = nullptr;

}  // namespace

SharedError::~SharedError() = default;
Control::~Control() = default;
Collectives::~Collectives() = default;

std::string describe(const RankActivity& activity) {
  std::string text = fmt::format("rank {} on {}", activity.rank, activity.host);
  if (activity.step > 0) text += fmt::format(", step {}", activity.step);
  if (!activity.operation.empty()) text += ", " + activity.operation;
  return text;
}

Ranks::Ranks() : Ranks(std::make_unique<LocalControl>(), std::make_unique<LocalCollectives>()) {}

Ranks::Ranks(std::unique_ptr<Control> control, std::unique_ptr<Collectives> collectives)
    : control_(std::move(control)),
      collectives_(std::move(collectives)),
      rank_(control_->rank()),
      size_(control_->size()) {
  activity_.rank = rank_;
  activity_.host = control_->host();
  failed_in_.step = -1;
  if (size_ == 1) return;
  tell_activity();
  const std::vector<std::string> hosts = control_->gather(activity_.host);
  host_size_ = static_cast<int>(std::count(hosts.begin(), hosts.end(), activity_.host));
  host_rank_ = static_cast<int>(std::count(hosts.begin(), hosts.begin() + rank_, activity_.host));
}

Ranks::~Ranks() = default;

void Ranks::sum(std::span<double> values) {
  if (size_ == 1) return;
  const std::vector<std::string> all = control_->gather(packed<double>(values));
  std::fill(values.begin(), values.end(), 0.0);
  for (const std::string& text : all) {
    const std::vector<double> part = unpacked<double>(text);
    QUIRE_CHECK(part.size() == values.size(), "ranks: {} values of one rank and {} of another", part.size(),
                values.size());
    for (size_t i = 0; i < part.size(); ++i) values[i] += part[i];
  }
}

double Ranks::largest(double value) {
  double most = value;
  if (size_ == 1) return most;
  for (const std::string& text : control_->gather(packed<double>({&value, 1}))) {
    most = std::max(most, unpacked<double>(text).at(0));
  }
  return most;
}

std::vector<std::string> Ranks::gather(const std::string& mine) {
  return control_->gather(mine);
}

std::string Ranks::broadcast_from_root(const std::string& text) {
  return control_->broadcast(text, 0);
}

void Ranks::barrier() {
  control_->barrier();
}

void Ranks::agree(std::string_view what, const std::string& text, std::string_view hint) {
  if (size_ == 1) return;
  const std::vector<std::string> all = control_->gather(text);
  for (size_t rank = 1; rank < all.size(); ++rank) {
    if (all[rank] == all[0]) continue;
    throw SharedError(ErrorKind::communication,
                      fmt::format("{}: rank {} has {} and rank 0 has {}; {}", what, rank, all[rank], all[0], hint));
  }
}

void Ranks::on_some(bool mine, const std::function<void()>& work) {
  if (size_ == 1) {
    if (mine) work();
    return;
  }
  // Who failed, where: the activity that an inner operation left, or this one.
  const std::string outcome = outcome_of(mine, work);
  const RankActivity& where = failed_in_.step >= 0 ? failed_in_ : activity_;
  const std::vector<std::string> outcomes = control_->gather(outcome);
  const std::vector<std::string> places = outcomes == std::vector<std::string>(outcomes.size(), outcomes[0])
                                              ? std::vector<std::string>(outcomes.size())
                                              : control_->gather(describe(where));
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    if (outcomes[rank][0] != 'e') continue;
    const auto kind = static_cast<ErrorKind>(outcomes[rank][1] - '0');
    const std::string message = outcomes[rank].substr(2);
    // What every rank met that had work to do is no matter of one rank.
    const bool of_all = std::all_of(outcomes.begin(), outcomes.end(),
                                    [&](const std::string& other) { return other == "-" || other == outcomes[rank]; });
    throw SharedError(kind, of_all ? message : fmt::format("{}: {}", places[rank], message));
  }
}

void Ranks::set_deadline(std::chrono::milliseconds deadline) {
  control_->set_deadline(deadline);
}

void Ranks::set_step(int64_t step) {
  activity_.step = step;
}

void Ranks::tell_activity() {
  control_->set_activity(activity_);
}

std::optional<std::string> Ranks::fail(ErrorKind kind, const std::string& message, bool shared) {
  if (size_ == 1) return message;
  const RankActivity& where = failed_in_.step >= 0 ? failed_in_ : activity_;
  const bool as_it_is = shared || where.operation.empty();
  const std::string text = as_it_is ? message : fmt::format("{}: {}", describe(where), message);
  if (!control_->fail(kind, text)) return std::nullopt;
  return text;
}

Ranks::Operation::Operation(Ranks& ranks, const char* name)
    : ranks_(ranks), outer_(std::exchange(ranks.activity_.operation, name)), exceptions_(std::uncaught_exceptions()) {
  ranks.failed_in_.step = -1;
  ranks.tell_activity();
  if (!ranks.probe_) return;
  try {
    ranks.probe_(ranks.activity_);
  } catch (...) {
    ranks.failed_in_ = ranks.activity_;
    ranks.activity_.operation = outer_;
    throw;
  }
}

Ranks::Operation::~Operation() {
  if (std::uncaught_exceptions() > exceptions_ && ranks_.failed_in_.step < 0) ranks_.failed_in_ = ranks_.activity_;
  ranks_.activity_.operation = outer_;
  ranks_.tell_activity();
}

Ranks& Ranks::current() {
  if (current_ranks != nullptr) return *current_ranks;
  static Ranks one;
  return one;
}

Ranks::Use::Use(Ranks& ranks) : previous_(std::exchange(current_ranks, &ranks)) {}
Ranks::Use::~Use() {
  current_ranks = previous_;
}

}  // namespace quire
