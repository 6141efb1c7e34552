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
  int host_rank() const { return host_rank_; }  // among the ranks on the same host
  int host_size() const { return host_size_; }
  // Of the cores of the host those that fall to this rank, which launchers may have bound to some of them.
  int cores() const { return cores_; }
  const std::string& host() const { return activity_.host; }
  const std::vector<std::string>& hosts() const { return hosts_; }  // of all ranks, by rank
  Collectives& collectives() { return *collectives_; }
  // From now on: those of the device that the run computes on (DeviceBackend::connect).
  void use(std::unique_ptr<Collectives> collectives) { collectives_ = std::move(collectives); }
  Control& control() { return *control_; }

  // Host values. The sum is taken in the order of ranks, in place.
  void sum(std::span<double> values);
  double largest(double value);
  std::vector<std::string> gather(const std::string& mine);
  std::string broadcast_from_root(const std::string& text);
  // What find() returns on root, which alone calls it; an error of root's is one of all ranks. In a file system that
  // all hosts see, root's view counts: the listings of others may be older.
  std::string found_by_root(const std::function<std::string()>& find);
  void barrier();
  // Error(communication) on all ranks unless they give the same text: what it is, and which rank differs from root.
  void agree(std::string_view what, const std::string& text,
             std::string_view hint = "start all ranks with the same program, files and options");

  // Runs `work` where `mine` holds, and returns when all are done. What it throws on one rank, all throw, as
  // SharedError: the run may go on.
  void on_some(bool mine, const std::function<void()>& work);
  void on_root(const std::function<void()>& work) { on_some(is_root(), work); }
  void on_one_per_host(const std::function<void()>& work) { on_some(host_rank_ == 0, work); }
  void on_all(const std::function<void()>& work) { on_some(true, work); }

  void set_deadline(std::chrono::milliseconds deadline);
  void set_step(int64_t step);
  // Ends the run on all ranks because of an error of this one. Returns what is to be reported, and nothing when another
  // rank does that. With one rank it is the message itself.
  std::optional<std::string> fail(ErrorKind kind, const std::string& message, bool shared);

  // Names what this rank does while it lives. Begin with a verb: "saving the checkpoint".
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
  // Tests look at every operation of a rank as it begins.
  using Probe = std::function<void(const RankActivity&)>;
  void set_probe(Probe probe) { probe_ = std::move(probe); }

  // Those that verbs of the command line work with on this thread: the innermost Use, else one rank.
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
  RankActivity failed_in_;  // what an exception left; step -1: none
  Probe probe_;
};

// Numbers as a text that gather() takes, and back.
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
