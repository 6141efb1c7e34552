#include "trainers/serve/http_server.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/resource.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdarg>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/check.h"
#include "core/log.h"

namespace quire {

namespace {

constexpr size_t kHeadBytes = size_t{16} << 10;  // of a connection: head of a request, and what is on its way
constexpr int64_t kBodiesTogether = 8;           // all bodies have at most so many times the bytes of one

// The state of a request, which lives as long as the daemon's.
struct Slot {
  std::shared_ptr<HttpExchange> exchange;
  bool working = false;
};

struct Address {
  sockaddr_storage storage = {};
  bool six = false;
};

Address address_of(const HttpOptions& options) {
  Address address;
  const std::string host = options.host == "localhost" ? "127.0.0.1" : options.host;
  auto* four = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* six = reinterpret_cast<sockaddr_in6*>(&address.storage);
  const auto port = htons(static_cast<uint16_t>(options.port));
  if (::inet_pton(AF_INET, host.c_str(), &four->sin_addr) == 1) {
    four->sin_family = AF_INET;
    four->sin_port = port;
  } else if (::inet_pton(AF_INET6, host.c_str(), &six->sin6_addr) == 1) {
    six->sin6_family = AF_INET6;
    six->sin6_port = port;
    address.six = true;
  } else {
    fail(ErrorKind::config, "--host {}: is no address; use one such as 127.0.0.1, 0.0.0.0 or ::1", options.host);
  }
  return address;
}

// Raises the limit of open files as far as it goes. Returns how many connections fit.
int64_t possible_connections(int64_t connections) {
  constexpr int64_t kOthers = 512;
  rlimit limit = {};
  if (::getrlimit(RLIMIT_NOFILE, &limit) != 0) return connections;
  const auto needed = static_cast<rlim_t>(connections + kOthers);
  if (limit.rlim_cur < needed) {
    limit.rlim_cur = std::min(needed, limit.rlim_max);
    ::setrlimit(RLIMIT_NOFILE, &limit);
  }
  const int64_t possible = std::max<int64_t>(static_cast<int64_t>(limit.rlim_cur) - kOthers, 16);
  if (possible < connections) {
    log_warn(fmt::format("--connections {}: the limit of open files allows {}; raise it (ulimit -n)", connections,
                         possible));
  }
  return std::min(possible, connections);
}

std::string client_of(MHD_Connection* connection) {
  const MHD_ConnectionInfo* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CLIENT_ADDRESS);
  char text[INET6_ADDRSTRLEN] = "?";
  if (info == nullptr || info->client_addr == nullptr) return text;
  if (info->client_addr->sa_family == AF_INET) {
    ::inet_ntop(AF_INET, &reinterpret_cast<const sockaddr_in*>(info->client_addr)->sin_addr, text, sizeof text);
  } else if (info->client_addr->sa_family == AF_INET6) {
    ::inet_ntop(AF_INET6, &reinterpret_cast<const sockaddr_in6*>(info->client_addr)->sin6_addr, text, sizeof text);
  }
  return text;
}

int descriptor_of(MHD_Connection* connection) {
  const MHD_ConnectionInfo* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_CONNECTION_FD);
  return info == nullptr ? -1 : info->connect_fd;
}

// A head that the library cannot read gets an answer of its own, and the only line of the log here. Of errors in a body
// the exchange writes one.
void log_unread(void*, const char* format, va_list values) {
  if (!std::string_view(format).starts_with("Error processing request (HTTP response code is %u ('%s'))")) return;
  const unsigned status = va_arg(values, unsigned);
  const std::string_view page = va_arg(values, const char*);
  if (page.find("chunk") != std::string_view::npos || page.find("Content-Length") != std::string_view::npos) return;
  log_info(fmt::format("a request that cannot be read: {}", status));
}

// Paths are compared as they came.
size_t leave_escaped(void*, MHD_Connection*, char* text) {
  return std::strlen(text);
}

}  // namespace

HttpServer::HttpServer(const HttpOptions& options, ServerMetrics& metrics, WorkerThreads& workers, Handle handle)
    : options_(options),
      metrics_(metrics),
      workers_(workers),
      handle_(std::move(handle)),
      watch_(options.timeout, metrics) {
  const Address address = address_of(options);
  const auto limit = static_cast<unsigned>(possible_connections(options.connections));
  // The watch, which answers, ends slow requests before the library closes their connections.
  const auto seconds = static_cast<unsigned>(std::chrono::ceil<std::chrono::seconds>(options.timeout * 2).count());
  const unsigned flags = static_cast<unsigned>(MHD_USE_EPOLL_INTERNAL_THREAD) |
                         static_cast<unsigned>(MHD_ALLOW_SUSPEND_RESUME) | static_cast<unsigned>(MHD_USE_ERROR_LOG) |
                         (address.six ? static_cast<unsigned>(MHD_USE_IPv6) : 0U);
  daemon_ = MHD_start_daemon(flags, 0, nullptr, nullptr, &access, this, MHD_OPTION_EXTERNAL_LOGGER, &log_unread,
                             nullptr, MHD_OPTION_SOCK_ADDR, &address.storage, MHD_OPTION_CONNECTION_LIMIT, limit,
                             MHD_OPTION_CONNECTION_TIMEOUT, seconds, MHD_OPTION_CONNECTION_MEMORY_LIMIT, kHeadBytes,
                             MHD_OPTION_NOTIFY_COMPLETED, &completed, this, MHD_OPTION_NOTIFY_CONNECTION,
                             &connection_changed, this, MHD_OPTION_UNESCAPE_CALLBACK, &leave_escaped, nullptr,
                             MHD_OPTION_LISTEN_BACKLOG_SIZE, 1024U, MHD_OPTION_END);
  if (daemon_ == nullptr) {
    fail(ErrorKind::config, "--host {} --port {}: the server cannot listen there ({}); choose another port",
         options.host, options.port, std::strerror(errno));
  }
}

HttpServer::~HttpServer() {
  stop_listening();
  MHD_stop_daemon(daemon_);
}

std::string HttpServer::address() const {
  const MHD_DaemonInfo* info = MHD_get_daemon_info(daemon_, MHD_DAEMON_INFO_BIND_PORT);
  const bool six = options_.host.find(':') != std::string::npos;
  return fmt::format("http://{}{}{}:{}", six ? "[" : "", options_.host, six ? "]" : "", info->port);
}

void HttpServer::stop_listening() {
  const MHD_socket descriptor = MHD_quiesce_daemon(daemon_);
  if (descriptor != MHD_INVALID_SOCKET) ::close(descriptor);
}

MHD_Result HttpServer::access(void* self, MHD_Connection* connection, const char* url, const char* method,
                              const char* version, const char* data, size_t* size, void** slot) {
  auto& server = *static_cast<HttpServer*>(self);
  try {
    if (*slot == nullptr) return server.begin(connection, url, method, version, slot);
    Slot& request = *static_cast<Slot*>(*slot);
    if (*size > 0) {
      const size_t count = std::exchange(*size, 0);
      return server.receive(connection, *request.exchange, data, count);
    }
    if (std::exchange(request.working, true)) return request.exchange->queue();
    server.work(connection, request.exchange);
    return MHD_YES;
  } catch (const std::exception& error) {  // memory
    log_warn(fmt::format("a connection was closed: {}", error.what()));
    return MHD_NO;
  }
}

MHD_Result HttpServer::begin(MHD_Connection* connection, const char* url, const char* method, const char* version,
                             void** slot) {
  auto exchange = std::make_shared<HttpExchange>(connection, metrics_, method, path_of(url));
  *slot = new Slot{exchange};  // completed() deletes it
  watch_.receives(connection, exchange);
  try {
    check_head(connection, {method, url, version}, options_.rules);
    return MHD_YES;
  } catch (const ServeError& error) {
    return end(connection, *exchange, error);
  }
}

// The library may have begun an answer of its own, so this one goes past it.
MHD_Result HttpServer::end(MHD_Connection* connection, HttpExchange& exchange, const ServeError& error) {
  send_plainly(descriptor_of(connection), error);
  exchange.set_refused(error.status());
  return MHD_NO;
}

MHD_Result HttpServer::receive(MHD_Connection* connection, HttpExchange& exchange, const char* data, size_t size) {
  const int64_t max = options_.rules.max_body;
  if (static_cast<int64_t>(exchange.body_bytes() + size) > max) {
    return end(connection, exchange, {413, fmt::format("the body has more than {} bytes; send less", max)});
  }
  if (metrics_.body_bytes + static_cast<int64_t>(size) > kBodiesTogether * max) {
    return end(connection, exchange,
               {503, "too many large requests arrive at once; send it again later", "Retry-After: 1"});
  }
  exchange.add_to_body(data, size);
  return MHD_YES;
}

void HttpServer::work(MHD_Connection* connection, const std::shared_ptr<HttpExchange>& exchange) {
  watch_.works(connection, exchange);
  exchange->suspend();
  workers_.post([this, exchange] { handle_(exchange->take_request(), exchange); });
}

void HttpServer::completed(void* self, MHD_Connection* connection, void** slot, MHD_RequestTerminationCode how) {
  auto& server = *static_cast<HttpServer*>(self);
  const std::unique_ptr<Slot> request(static_cast<Slot*>(std::exchange(*slot, nullptr)));
  if (request == nullptr) return;
  request->exchange->complete(how == MHD_REQUEST_TERMINATED_COMPLETED_OK, client_of(connection));
  server.watch_.idles(connection, request->exchange->refused());
}

void HttpServer::connection_changed(void* self, MHD_Connection* connection, void** /*context*/,
                                    MHD_ConnectionNotificationCode what) {
  auto& server = *static_cast<HttpServer*>(self);
  if (what == MHD_CONNECTION_NOTIFY_STARTED) {
    server.watch_.opened(connection, descriptor_of(connection));
  } else {
    server.watch_.closing(connection);
  }
}

}  // namespace quire
