#include "core/ranks/processes/rendezvous.h"

#include <arpa/inet.h>
#include <ifaddrs.h>
#include <net/if.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "core/check.h"

namespace quire {

namespace {

using Clock = std::chrono::steady_clock;

std::string random_token() {
  std::random_device random;
  std::string token;
  for (int i = 0; i < 4; ++i) token += fmt::format("{:08x}", random());
  return token;
}

// Of all interfaces that are up; the loopback comes last, for ranks on the same host without a network.
std::vector<std::string> own_addresses() {
  if (const char* given = std::getenv("QUIRE_ADDRESS")) return {given};
  std::vector<std::string> addresses;
  ifaddrs* list = nullptr;
  if (::getifaddrs(&list) != 0) return {"127.0.0.1"};
  for (const bool loopback : {false, true}) {
    for (const ifaddrs* one = list; one != nullptr; one = one->ifa_next) {
      if (one->ifa_addr == nullptr || (one->ifa_flags & IFF_UP) == 0) continue;
      if (((one->ifa_flags & IFF_LOOPBACK) != 0) != loopback) continue;
      const int family = one->ifa_addr->sa_family;
      if (family != AF_INET && family != AF_INET6) continue;
      std::array<char, NI_MAXHOST> name{};
      const auto size = static_cast<socklen_t>(family == AF_INET ? sizeof(sockaddr_in) : sizeof(sockaddr_in6));
      if (::getnameinfo(one->ifa_addr, size, name.data(), name.size(), nullptr, 0, NI_NUMERICHOST) != 0) continue;
      // Those with a scope mean something else on another host.
      if (std::strchr(name.data(), '%') == nullptr) addresses.emplace_back(name.data());
    }
  }
  ::freeifaddrs(list);
  return addresses;
}

// Returns whether the socket becomes ready for `events` before then.
bool await(int descriptor, short events, Clock::time_point until) {
  pollfd one{descriptor, events, 0};
  for (;;) {
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(until - Clock::now());
    const int ready = ::poll(&one, 1, static_cast<int>(std::clamp<int64_t>(left.count(), 0, 60'000)));
    if (ready > 0) return true;
    if (ready < 0 && errno != EINTR) return false;
    if (Clock::now() >= until) return false;
  }
}

// The first frame that comes, if one does.
std::optional<Frame> first_frame(FrameSocket& socket, Clock::time_point until) {
  std::vector<Frame> frames;
  while (frames.empty() && !socket.closed()) {
    if (!await(socket.descriptor(), POLLIN, until)) return std::nullopt;
    socket.receive(frames, 1);
  }
  return frames.empty() ? std::nullopt : std::optional(frames.front());
}

void answer_at_once(int descriptor) {
  const int on = 1;
  ::setsockopt(descriptor, IPPROTO_TCP, TCP_NODELAY, &on, sizeof(on));
}

// Empty when nobody listens there, or someone else does.
std::unique_ptr<FrameSocket> try_address(const std::string& address, const std::string& port, const std::string& token,
                                         const Member& member, Clock::time_point until) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  addrinfo* found = nullptr;
  if (::getaddrinfo(address.c_str(), port.c_str(), &hints, &found) != 0) return nullptr;
  std::unique_ptr<FrameSocket> socket;
  for (const addrinfo* one = found; one != nullptr && !socket; one = one->ai_next) {
    const int descriptor = ::socket(one->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    if (descriptor < 0) continue;
    auto attempt = std::make_unique<FrameSocket>(descriptor);
    if (::connect(descriptor, one->ai_addr, one->ai_addrlen) != 0 && errno != EINPROGRESS) continue;
    int error = 0;
    socklen_t size = sizeof(error);
    if (!await(descriptor, POLLOUT, until) || ::getsockopt(descriptor, SOL_SOCKET, SO_ERROR, &error, &size) != 0 ||
        error != 0) {
      continue;
    }
    answer_at_once(descriptor);
    attempt->send({FrameType::hello, static_cast<uint64_t>(member.rank), token + member.host});
    const std::optional<Frame> answer = first_frame(*attempt, until);
    if (answer && answer->type == FrameType::welcome && answer->text == token) socket = std::move(attempt);
  }
  ::freeaddrinfo(found);
  return socket;
}

// How many have not come. One that waited too long for its welcome has given up that connection and comes again; one
// that has said something after it is here, or was and has ended.
int count_missing(std::vector<Rendezvous::Peer>& peers) {
  int missing = 0;
  for (size_t rank = 1; rank < peers.size(); ++rank) {
    std::unique_ptr<FrameSocket>& socket = peers[rank].socket;
    std::vector<Frame> none;
    if (socket) socket->receive(none, 0);  // what came after the welcome stays in it
    if (socket && socket->closed() && !socket->has_arrived()) socket.reset();
    if (!socket) ++missing;
  }
  return missing;
}

}  // namespace

Rendezvous::Rendezvous() : token_(random_token()) {
  // One socket takes both families; a kernel without IPv6 has none of that kind.
  listener_ = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC, 0);
  sockaddr_storage address{};
  socklen_t size = sizeof(sockaddr_in6);
  if (listener_ >= 0) {
    const int off = 0;
    ::setsockopt(listener_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    reinterpret_cast<sockaddr_in6&>(address).sin6_family = AF_INET6;
  } else {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    size = sizeof(sockaddr_in);
    reinterpret_cast<sockaddr_in&>(address).sin_family = AF_INET;
  }
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&address), size) != 0 ||
      ::listen(listener_, SOMAXCONN) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size) != 0) {
    fail(ErrorKind::communication, "rank 0 cannot listen on a TCP port for the other ranks: {}", std::strerror(errno));
  }
  // The port is at the same place for both families.
  const int port = ntohs(reinterpret_cast<sockaddr_in&>(address).sin_port);
  contact_ = nlohmann::json{{"addresses", own_addresses()}, {"port", port}, {"token", token_}}.dump();
}

Rendezvous::~Rendezvous() {
  if (listener_ >= 0) ::close(listener_);
}

std::vector<Rendezvous::Peer> Rendezvous::receive(int size, std::chrono::milliseconds limit) {
  const Clock::time_point until = Clock::now() + limit;
  std::vector<Peer> peers(static_cast<size_t>(size));
  while (count_missing(peers) > 0) {
    if (!await(listener_, POLLIN, until)) {
      std::vector<int> absent;
      for (int rank = 1; rank < size; ++rank) {
        if (!peers[static_cast<size_t>(rank)].socket) absent.push_back(rank);
      }
      fail(ErrorKind::communication,
           "rank 0 waited {:.3g} s for the other ranks; those that did not connect to it: {}. Its address is {}",
           static_cast<double>(limit.count()) / 1000, fmt::join(absent, ", "),
           fmt::join(nlohmann::json::parse(contact_).at("addresses").get<std::vector<std::string>>(), ", "));
    }
    const int descriptor = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    if (descriptor < 0 && (errno == EMFILE || errno == ENFILE)) {
      fail(ErrorKind::communication,
           "rank 0 cannot take the connections of {} ranks: {}; allow it more files (ulimit -n)", size,
           std::strerror(errno));
    }
    if (descriptor < 0) continue;
    answer_at_once(descriptor);
    auto socket = std::make_unique<FrameSocket>(descriptor);
    // A stranger is not waited for long.
    const std::optional<Frame> hello = first_frame(*socket, Clock::now() + std::chrono::seconds(2));
    if (!hello || hello->type != FrameType::hello || !hello->text.starts_with(token_) || hello->number == 0 ||
        hello->number >= peers.size()) {
      continue;
    }
    Peer& peer = peers[static_cast<size_t>(hello->number)];
    socket->send({FrameType::welcome, 0, token_});
    peer = {std::move(socket), hello->text.substr(token_.size())};
  }
  return peers;
}

std::unique_ptr<FrameSocket> connect_to_root(const std::string& contact, const Member& member,
                                             std::chrono::milliseconds limit) {
  const auto json = nlohmann::json::parse(contact);
  const auto addresses = json.at("addresses").get<std::vector<std::string>>();
  const std::string port = std::to_string(json.at("port").get<int>());
  const std::string token = json.at("token");
  const Clock::time_point until = Clock::now() + limit;
  // Packets to an address that is not reachable from here may vanish without an answer.
  std::chrono::milliseconds patience(500);
  do {
    for (const std::string& address : addresses) {
      const Clock::time_point try_until = std::min(until, Clock::now() + patience);
      if (std::unique_ptr<FrameSocket> socket = try_address(address, port, token, member, try_until)) return socket;
    }
    patience *= 2;
    await(-1, 0, std::min(until, Clock::now() + std::chrono::milliseconds(100)));
  } while (Clock::now() < until);
  fail(ErrorKind::communication,
       "rank {} on {} cannot connect to rank 0 at {}, port {}: ranks talk to rank 0 over TCP, which a firewall between "
       "the "
       "hosts may block; the environment variable QUIRE_ADDRESS says which address rank 0 gives to the others",
       member.rank, member.host, fmt::join(addresses, " or "), port);
}

}  // namespace quire
