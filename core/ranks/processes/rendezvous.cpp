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
#include <cstring>
#include <optional>
#include <random>

#include "core/awake_time.h"
#include "core/check.h"
#include "core/json.h"
#include "core/ranks/processes/contact.h"

namespace quire {

namespace {

using Clock = std::chrono::steady_clock;

constexpr size_t kTokenSize = 32;
// The largest text beside the token in a hello, or in an answer instead of it.
constexpr size_t kLongestHost = 1024;
// Limits for connections that have not yet proved who they are: their number, and the time for each.
constexpr size_t kMaxStrangers = 128;
constexpr std::chrono::seconds kFirstWords{10};

std::string random_token() {
  std::random_device random;
  std::string token;
  for (size_t i = 0; i < kTokenSize / 8; ++i) token += fmt::format("{:08x}", random());
  return token;
}

// Returns the addresses of all interfaces that are up; the loopback comes last, for ranks on the same host without a
// network.
std::vector<std::string> own_addresses() {
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
      // Addresses with a scope (%) are valid only on this host.
      if (std::strchr(name.data(), '%') == nullptr) addresses.emplace_back(name.data());
    }
  }
  ::freeifaddrs(list);
  return addresses;
}

// Returns whether the socket becomes ready for `events` before `until`.
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

// Returns the first frame that arrives, if any.
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

// Returns a connection, or nullptr when nobody listens there or it is another program.
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
    attempt->set_max_text_bytes(token.size());
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
    if (!answer || answer->type != FrameType::welcome || answer->text != token) continue;
    attempt->set_max_text_bytes(kLargestText);
    socket = std::move(attempt);
  }
  ::freeaddrinfo(found);
  return socket;
}

// Returns how many ranks have not come. A rank that waited too long for its welcome has dropped that connection and
// comes again; one that has sent something after its welcome is present, or was and has ended.
int count_missing(std::vector<Rendezvous::Peer>& peers) {
  int missing = 0;
  for (size_t rank = 1; rank < peers.size(); ++rank) {
    std::unique_ptr<FrameSocket>& socket = peers[rank].socket;
    std::vector<Frame> none;
    if (socket) socket->receive(none, 0);  // data after the welcome stays in the socket
    if (socket && socket->closed() && !socket->has_arrived()) socket.reset();
    if (!socket) ++missing;
  }
  return missing;
}

std::string some_of(const std::vector<int>& ranks) {
  constexpr size_t kMaxListed = 10;
  if (ranks.size() <= kMaxListed) return fmt::format("{}", fmt::join(ranks, ", "));
  return fmt::format("{} and {} more", fmt::join(ranks.begin(), ranks.begin() + kMaxListed, ", "),
                     ranks.size() - kMaxListed);
}

}  // namespace

Rendezvous::Rendezvous(const std::string& address, int port) : token_(random_token()) {
  // One IPv6 socket serves both families; a kernel without IPv6 has none.
  listener_ = ::socket(AF_INET6, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
  sockaddr_storage place{};
  socklen_t size = sizeof(sockaddr_in6);
  const int on = 1;
  if (listener_ >= 0) {
    const int off = 0;
    ::setsockopt(listener_, IPPROTO_IPV6, IPV6_V6ONLY, &off, sizeof(off));
    reinterpret_cast<sockaddr_in6&>(place).sin6_family = AF_INET6;
  } else {
    listener_ = ::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0);
    size = sizeof(sockaddr_in);
    reinterpret_cast<sockaddr_in&>(place).sin_family = AF_INET;
  }
  // The port lies at the same offset for both families. A fixed port may still have connections of the run before,
  // hence SO_REUSEADDR.
  in_port_t& place_port = reinterpret_cast<sockaddr_in&>(place).sin_port;
  place_port = htons(static_cast<uint16_t>(port));
  if (port != 0) ::setsockopt(listener_, SOL_SOCKET, SO_REUSEADDR, &on, sizeof(on));
  if (listener_ < 0 || ::bind(listener_, reinterpret_cast<sockaddr*>(&place), size) != 0 ||
      ::listen(listener_, SOMAXCONN) != 0 ||
      ::getsockname(listener_, reinterpret_cast<sockaddr*>(&place), &size) != 0) {
    const int error = errno;
    if (listener_ >= 0) ::close(listener_);
    const std::string where = port == 0 ? "a TCP port" : fmt::format("the TCP port {} (QUIRE_PORT)", port);
    fail(ErrorKind::communication, "rank 0 cannot listen on {} for the other ranks: {}{}", where, std::strerror(error),
         port == 0 ? "" : "; choose another one, or none");
  }
  addresses_ = address.empty() ? own_addresses() : std::vector<std::string>{address};
  contact_ = nlohmann::json{{"addresses", addresses_}, {"port", ntohs(place_port)}, {"token", token_}}.dump(
      -1, ' ', false, nlohmann::json::error_handler_t::replace);
}

Rendezvous::~Rendezvous() {
  if (listener_ >= 0) ::close(listener_);
}

// Accepts some of the waiting connections. When there are too many, the ones that were silent for longest are dropped.
void Rendezvous::take_connections(std::vector<Stranger>& strangers, int size) const {
  for (size_t taken = 0; taken < kMaxStrangers / 2; ++taken) {
    const int descriptor = ::accept4(listener_, nullptr, nullptr, SOCK_CLOEXEC);
    const bool no_more_files = descriptor < 0 && (errno == EMFILE || errno == ENFILE);
    if (no_more_files && strangers.empty()) {
      fail(ErrorKind::communication,
           "rank 0 cannot take the connections of {} ranks: {}; allow it more files (ulimit -n)", size,
           std::strerror(errno));
    }
    if (no_more_files || strangers.size() >= kMaxStrangers) strangers.erase(strangers.begin());
    if (descriptor < 0) return;
    answer_at_once(descriptor);
    strangers.push_back({std::make_unique<FrameSocket>(descriptor), Clock::now() + kFirstWords});
    strangers.back().socket->set_max_text_bytes(kTokenSize + kLongestHost);
  }
}

// Makes peers of the connections that know the token. Those that sent something else, or nothing for too long, are
// dropped.
void Rendezvous::hear(std::vector<Stranger>& strangers, std::vector<Peer>& peers) const {
  const Clock::time_point now = Clock::now();
  std::vector<Stranger> silent;
  for (Stranger& stranger : strangers) {
    std::vector<Frame> frames;
    stranger.socket->receive(frames, 1);
    if (frames.empty() && !stranger.socket->closed() && now < stranger.until) silent.push_back(std::move(stranger));
    if (frames.empty()) continue;
    const Frame& hello = frames.front();
    if (hello.type != FrameType::hello || !hello.text.starts_with(token_) || hello.number == 0 ||
        hello.number >= peers.size()) {
      continue;
    }
    stranger.socket->set_max_text_bytes(kLargestText);
    stranger.socket->send({FrameType::welcome, 0, token_});
    peers[static_cast<size_t>(hello.number)] = {std::move(stranger.socket), hello.text.substr(token_.size())};
  }
  strangers = std::move(silent);
}

std::vector<Rendezvous::Peer> Rendezvous::receive(int size, std::chrono::milliseconds limit) {
  AwakeTime waited;
  std::vector<Peer> peers(static_cast<size_t>(size));
  std::vector<Stranger> strangers;
  while (count_missing(peers) > 0) {
    const auto left = std::chrono::ceil<std::chrono::milliseconds>(limit - waited.passed());
    if (left.count() <= 0) {
      std::vector<int> absent;
      for (int rank = 1; rank < size; ++rank) {
        if (!peers[static_cast<size_t>(rank)].socket) absent.push_back(rank);
      }
      fail(ErrorKind::communication,
           "rank 0 waited {:.3g} s for the other ranks; those that did not connect to it: {}. Its address is {}",
           static_cast<double>(limit.count()) / 1000, some_of(absent), fmt::join(addresses_, ", "));
    }
    std::vector<pollfd> sources{{listener_, POLLIN, 0}};
    for (const Stranger& stranger : strangers) sources.push_back({stranger.socket->descriptor(), POLLIN, 0});
    constexpr int64_t kLook = 100;  // ms; how often lost peers are looked for
    ::poll(sources.data(), sources.size(), static_cast<int>(std::min(left.count(), kLook)));
    hear(strangers, peers);
    take_connections(strangers, size);
  }
  return peers;
}

std::unique_ptr<FrameSocket> connect_to_root(const std::string& contact, const Member& member,
                                             std::chrono::milliseconds limit) {
  const std::optional<Contact> root = parsed_contact(contact);
  if (!root) {
    fail(ErrorKind::communication, "rank {} on {}: rank 0 does not say how to reach it", member.rank, member.host);
  }
  const std::string port = std::to_string(root->port);
  // The time per address is limited, because packets to an unreachable address may vanish without an answer.
  constexpr std::chrono::milliseconds kLongestTry = std::chrono::seconds(4);
  AwakeTime waited(kLongestTry + std::chrono::seconds(1));
  const auto left = [&] { return std::chrono::ceil<std::chrono::milliseconds>(limit - waited.passed()); };
  std::chrono::milliseconds patience(500);
  do {
    for (const std::string& address : root->addresses) {
      const Clock::time_point try_until = Clock::now() + std::min(left(), patience);
      if (std::unique_ptr<FrameSocket> socket = try_address(address, port, root->token, member, try_until)) {
        return socket;
      }
    }
    patience = std::min(2 * patience, kLongestTry);
    await(-1, 0, Clock::now() + std::min(left(), std::chrono::milliseconds(100)));
  } while (left().count() > 0);
  fail(ErrorKind::communication,
       "rank {} on {} cannot connect to rank 0 at {}, port {}: ranks talk to rank 0 over TCP, which a firewall between "
       "the hosts may block; the environment variables QUIRE_ADDRESS and QUIRE_PORT of rank 0 choose the address that "
       "it gives to the others and its port",
       member.rank, member.host, fmt::join(root->addresses, " or "), port);
}

}  // namespace quire
