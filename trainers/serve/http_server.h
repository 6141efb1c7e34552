// HTTP/1.1 by libmicrohttpd: one thread moves the bytes of all connections, so that slow ones cost little memory and
// nobody's time; a few workers parse requests; the engine's thread computes.
#pragma once

#include <chrono>
#include <functional>
#include <memory>
#include <string>

#include "trainers/serve/connection_watch.h"
#include "trainers/serve/http_rules.h"
#include "trainers/serve/worker_threads.h"

struct MHD_Daemon;

namespace quire {

struct HttpOptions {
  std::string host = "127.0.0.1";  // an address, or localhost
  int64_t port = 8080;             // 0: any free one
  HttpRules rules;
  std::chrono::milliseconds timeout{30000};  // for a whole request to arrive
  int64_t connections = 16384;
};

class HttpServer {
 public:
  using Handle = std::function<void(const ServeRequest&, const std::shared_ptr<Reply>&)>;

  // Begins to listen; requests that come are passed to `handle` on a worker's thread. Throws Error(config) for an
  // address that cannot be used.
  HttpServer(const HttpOptions& options, ServerMetrics& metrics, WorkerThreads& workers, Handle handle);
  // Every request must have been answered.
  ~HttpServer();
  HttpServer(const HttpServer&) = delete;
  HttpServer& operator=(const HttpServer&) = delete;

  std::string address() const;  // "http://127.0.0.1:8080"
  // Takes no more connections.
  void stop_listening();

 private:
  static MHD_Result access(void* self, MHD_Connection* connection, const char* url, const char* method,
                           const char* version, const char* data, size_t* size, void** slot);
  static void completed(void* self, MHD_Connection* connection, void** slot, MHD_RequestTerminationCode how);
  static void connection_changed(void* self, MHD_Connection* connection, void** context,
                                 MHD_ConnectionNotificationCode what);
  MHD_Result begin(MHD_Connection* connection, const char* url, const char* method, const char* version, void** slot);
  static MHD_Result end(MHD_Connection* connection, HttpExchange& exchange, const ServeError& error);
  MHD_Result receive(MHD_Connection* connection, HttpExchange& exchange, const char* data, size_t size);
  void work(MHD_Connection* connection, const std::shared_ptr<HttpExchange>& exchange);

  HttpOptions options_;
  ServerMetrics& metrics_;
  WorkerThreads& workers_;
  Handle handle_;
  ConnectionWatch watch_;
  MHD_Daemon* daemon_ = nullptr;
};

}  // namespace quire
