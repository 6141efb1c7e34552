#include "core/ranks/ranks.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <exception>
#include <filesystem>
#include <limits>
#include <new>
#include <utility>

#include "core/check.h"
#include "core/cores.h"

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
  std::chrono::milliseconds deadline() const override { return std::chrono::milliseconds::max(); }
  void set_activity(const RankActivity&) override {}
  bool fail(ErrorKind, const std::string&) override { return true; }
  void check() const override {}
  void overdue(int64_t) override {}
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

// Returns how work ended on a rank, as a text: '-' when it had none, 'd' when it is done, or 'e', the kind of the error
// and its message.
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
  } catch (const std::filesystem::filesystem_error& caught) {
    return error(ErrorKind::disk, fmt::format("{}: {}", caught.path1().string(), caught.code().message()));
  } catch (const std::exception& caught) {
    return error(ErrorKind::internal, caught.what());
  }
}

thread_local Ranks* current_ranks = nullptr;

}  // namespace

SharedError::~SharedError() = default;
Control::~Control() = default;
RankActivity Control::activity() const {
  return {rank(), host(), 0, ""};
}
Collectives::~Collectives() = default;
std::string Collectives::description() const {
  return "";
}

// Defined here, because core/device includes neither ranks nor their collectives.
std::unique_ptr<Collectives> DeviceBackend::connect(Ranks&) {
  return nullptr;
}

void Control::reduce(Reduction reduction, std::span<double> values) {
  reduce_in_order(reduction, gather(packed<double>(values)), values);
}

void Control::reduce_in_order(Reduction reduction, const std::vector<std::string>& all, std::span<double> values) {
  const bool sums = reduction == Reduction::sum;
  std::fill(values.begin(), values.end(), sums ? 0.0 : -std::numeric_limits<double>::infinity());
  for (const std::string& text : all) {
    const std::vector<double> part = unpacked<double>(text);
    QUIRE_CHECK(part.size() == values.size(), "ranks: {} values of one rank and {} of another", part.size(),
                values.size());
    for (size_t i = 0; i < part.size(); ++i) values[i] = sums ? values[i] + part[i] : std::max(values[i], part[i]);
  }
}

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
  const std::vector<int> cores = allowed_core_list();
  cores_ = allowed_cores();
  hosts_ = {activity_.host};
  if (size_ == 1) return;
  tell_activity();
  hosts_ = control_->gather(activity_.host);
  const std::vector<std::string>& hosts = hosts_;
  host_size_ = static_cast<int>(std::count(hosts.begin(), hosts.end(), activity_.host));
  host_rank_ = static_cast<int>(std::count(hosts.begin(), hosts.begin() + rank_, activity_.host));
  std::vector<std::vector<int>> cores_of_host;
  const std::vector<std::string> cores_of_all = control_->gather(packed<int>(cores));
  for (size_t rank = 0; rank < hosts.size(); ++rank) {
    if (hosts[rank] == activity_.host) cores_of_host.push_back(unpacked<int>(cores_of_all[rank]));
  }
  cores_ = share_of_cores(cores, cores_of_host);
  // The ranks of a host share its quota, too.
  const int allowed = allowed_cores();
  if (allowed < static_cast<int>(cores.size())) cores_ = std::min(cores_, std::max(1, allowed / host_size_));
}

Ranks::~Ranks() = default;

void Ranks::sum(std::span<double> values) {
  if (size_ > 1) control_->reduce(Control::Reduction::sum, values);
}

double Ranks::largest(double value) {
  if (size_ > 1) control_->reduce(Control::Reduction::max, {&value, 1});
  return value;
}

std::vector<std::string> Ranks::gather(const std::string& mine) {
  return control_->gather(mine);
}

std::string Ranks::broadcast_from_root(const std::string& text) {
  return control_->broadcast(text, 0);
}

std::string Ranks::found_by_root(const std::function<std::string()>& find) {
  std::string found;
  on_root([&] { found = find(); });
  return broadcast_from_root(found);
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
  // The activity of an inner operation that failed, or else the current one.
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
    // When every rank that had work met the same error, the message names no single rank.
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
