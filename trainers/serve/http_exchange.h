// One request over HTTP and its reply. The daemon's thread moves the bytes; other threads answer, while the connection
// is suspended.
#pragma once

#include <microhttpd.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <mutex>
#include <string>

#include "trainers/serve/reply.h"
#include "trainers/serve/server_metrics.h"

namespace quire {

class HttpExchange : public Reply {
 public:
  HttpExchange(MHD_Connection* connection, ServerMetrics& metrics, std::string method, std::string path);
  ~HttpExchange() override;

  // The daemon's thread calls these.
  void add_to_body(const char* bytes, size_t count);
  void suspend();
  // Sends what was answered.
  MHD_Result queue();
  // Called when nothing can be sent any more. Writes the line of the log.
  void complete(bool sent, const std::string& client);
  size_t body_bytes() const { return body_bytes_; }
  ServeRequest take_request();
  bool refused() const { return refused_; }

  // Any thread may call these.
  void send(Response response) override;
  void begin_stream() override;
  void write(const std::string& piece) override;
  void end_stream() override;
  void when_gone(std::function<void()> gone) override;
  // Called when the request was refused with a response that did not go through send().
  void set_refused(int status);
  // Called when the client has closed its side of the connection.
  void client_left();

 private:
  static ssize_t read_stream(void* self, uint64_t position, char* buffer, size_t max);
  MHD_Result queue_stream();
  MHD_Result queue_response();
  void end_after_chunks(MHD_Response* response) const;
  void resume();  // under the mutex

  ServerMetrics& metrics_;
  ServeRequest request_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
  size_t body_bytes_ = 0;  // as counted in the metrics
  std::atomic<bool> refused_{false};
  bool counted_ = false;  // among the open requests

  std::mutex mutex_;  // of what follows
  MHD_Connection* connection_;
  bool suspended_ = false;
  bool streams_ = false;
  bool stream_ended_ = false;
  bool left_ = false;
  Response response_;
  std::string stream_;
  size_t stream_begin_ = 0;  // bytes of it that were sent
  int64_t reply_bytes_ = 0;  // as counted in the metrics
  std::function<void()> gone_;
};

}  // namespace quire
