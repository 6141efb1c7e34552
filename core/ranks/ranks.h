// The ranks of a run as one of them sees them: N copies of the program that train one model together.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "core/ranks/collectives.h"
#include "core/ranks/control.h"

namespace quire {

class Ranks {
 public:
  Ranks();  // one rank: every exchange is the identity
  Ranks(std::unique_ptr<Control> control, std::unique_ptr<Collectives> collectives);
  Ranks(const Ranks&) = delete;
  Ranks& operator=(const Ranks&) = delete;
  ~Ranks();

  int rank() const { return rank_; }
  int size() const { return size_; }
  bool is_root() const { return rank_ == 0; }
  int host_rank() const { return host_rank_; }  // number among the ranks on the same host
  int host_size() const { return host_size_; }
  // Returns this rank's share of the cores of its host; launchers may have bound the rank to some of them.
  int cores() const { return cores_; }
  const std::string& host() const { return activity_.host; }
  const std::vector<std::string>& hosts() const { return hosts_; }  // the host of every rank
  Collectives& collectives() { return *collectives_; }
  // Replaces the collectives by those of the device that the run computes on (DeviceBackend::connect).
  void use(std::unique_ptr<Collectives> collectives) { collectives_ = std::move(collectives); }
  Control& control() { return *control_; }

  // Exchange host values. The sum is taken in the order of ranks, in place.
  void sum(std::span<double> values);
  double largest(double value);
  std::vector<std::string> gather(const std::string& mine);
  std::string broadcast_from_root(const std::string& text);
  // Returns on every rank what find() returns on root, which alone calls it; an error of root is thrown on all ranks.
  // Use it to look at a shared file system, whose listings on other hosts may be older.
  std::string found_by_root(const std::function<std::string()>& find);
  void barrier();
  // Throws Error(communication) on all ranks unless they give the same text: the message says what differs, and which
  // rank differs from root.
  void agree(std::string_view what, const std::string& text,
             std::string_view hint = "start all ranks with the same program, files and options");

  // Runs `work` on the ranks where `mine` is true, and returns when all are done. When it throws on one rank, all throw
  // a SharedError; the run may continue.
  void on_some(bool mine, const std::function<void()>& work);
  void on_root(const std::function<void()>& work) { on_some(is_root(), work); }
  void on_one_per_host(const std::function<void()>& work) { on_some(host_rank_ == 0, work); }
  void on_all(const std::function<void()>& work) { on_some(true, work); }

  void set_deadline(std::chrono::milliseconds deadline);
  void set_step(int64_t step);
  // Ends the run on all ranks because of an error of this one. Returns the text to report, or nothing when another rank
  // reports. With one rank it is the message itself.
  std::optional<std::string> fail(ErrorKind kind, const std::string& message, bool shared);

  // Names what this rank is doing while it lives. Begin with a verb: "saving the checkpoint".
  class Operation {
   public:
    Operation(Ranks& ranks, const char* name);
    ~Operation();
    Operation(const Operation&) = delete;
    Operation& operator=(const Operation&) = delete;

   private:
    Ranks& ranks_;
    std::string outer_;
    int exceptions_;
  };
  // Tests use a probe to see every operation of a rank as it begins.
  using Probe = std::function<void(const RankActivity&)>;
  void set_probe(Probe probe) { probe_ = std::move(probe); }

  // Returns the ranks that verbs of the command line use on this thread: the innermost Use, else one rank.
  static Ranks& current();
  class Use {
   public:
    explicit Use(Ranks& ranks);
    ~Use();
    Use(const Use&) = delete;
    Use& operator=(const Use&) = delete;

   private:
    Ranks* previous_;
  };

 private:
  void tell_activity();

  std::unique_ptr<Control> control_;
  std::unique_ptr<Collectives> collectives_;
  int rank_ = 0;
  int size_ = 1;
  int host_rank_ = 0;
  int host_size_ = 1;
  int cores_ = 1;
  std::vector<std::string> hosts_;
  RankActivity activity_;
  RankActivity failed_in_;  // the activity during which an exception was thrown; step -1: none
  Probe probe_;
};

// Packs numbers into a text that gather() takes, and unpacks it.
template <typename T>
std::string packed(std::span<const T> values) {
  return {reinterpret_cast<const char*>(values.data()), values.size_bytes()};
}
template <typename T>
std::vector<T> unpacked(const std::string& text) {
  std::vector<T> values(text.size() / sizeof(T));
  std::copy_n(text.data(), values.size() * sizeof(T), reinterpret_cast<char*>(values.data()));
  return values;
}

}  // namespace quire
