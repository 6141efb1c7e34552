// How the processes of a run find each other: rank 0 listens on a TCP port, the others connect to it and prove by a
// random token that they belong to the run.
#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <vector>

#include "core/ranks/processes/frames.h"

namespace quire {

// One process per rank.
struct Member {
  int rank = 0;
  int size = 1;
  std::string host;
};

class Rendezvous {
 public:
  // Rank 0: listens on all addresses. Error(communication) when it cannot.
  Rendezvous();
  ~Rendezvous();
  Rendezvous(const Rendezvous&) = delete;
  Rendezvous& operator=(const Rendezvous&) = delete;

  // What the others need to know: addresses, port and token, one line of text. The addresses are those of this host, or
  // the one that the environment variable QUIRE_ADDRESS gives.
  const std::string& contact() const { return contact_; }
  // Connections by rank (that of rank 0 is empty) with the host that each rank says it is on. Error(communication)
  // names the ranks that have not come in time.
  struct Peer {
    std::unique_ptr<FrameSocket> socket;
    std::string host;
  };
  std::vector<Peer> receive(int size, std::chrono::milliseconds limit);

 private:
  int listener_ = -1;
  std::string token_;
  std::string contact_;
};

// The other ranks. Error(communication) names the addresses that were tried.
std::unique_ptr<FrameSocket> connect_to_root(const std::string& contact, const Member& member,
                                             std::chrono::milliseconds limit);

}  // namespace quire
