// Connects the processes of a run: rank 0 listens on a TCP port, the others connect to it and prove by a random token
// that they belong to the run.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/ranks/processes/frames.h"

namespace quire {

// One process, which is one rank.
struct Member {
  int rank = 0;
  int size = 1;
  std::string host;
};

class Rendezvous {
 public:
  // Rank 0 listens on all addresses; throws Error(communication) when it cannot. `address` is the one that the others
  // are given (empty: all addresses of this host). Port 0 means any free port.
  explicit Rendezvous(const std::string& address = "", int port = 0);
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // Returns what the others need to connect: addresses, port and token in one line of text.
  const std::string& contact() const { return contact_; }
  // Accepts connections and returns them by rank (that of rank 0 is empty), with the host name that each rank sent.
  // Connections that have not proved themselves are heard in parallel, each for a short time and with little memory.
  // Throws Error(communication) that names the ranks that have not come in time.
  struct Peer {
    std::unique_ptr<FrameSocket> socket;
    std::string host;
  };
  std::vector<Peer> receive(int size, std::chrono::milliseconds limit);

 private:
  struct Stranger {
    std::unique_ptr<FrameSocket> socket;
    std::chrono::steady_clock::time_point until;
  };
  void take_connections(std::vector<Stranger>& strangers, int size) const;
  void hear(std::vector<Stranger>& strangers, std::vector<Peer>& peers) const;

  int listener_ = -1;
  std::vector<std::string> addresses_;
  std::string token_;
  std::string contact_;
};

// Connects one of the other ranks to rank 0. Throws Error(communication) that names the addresses that were tried, or
// when `contact` is no contact.
std::unique_ptr<FrameSocket> connect_to_root(const std::string& contact, const Member& member,
                                             std::chrono::milliseconds limit);

}  // namespace quire
