// A request as the service sees it, and the reply that it gives, from any thread, at once or later.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

namespace quire {

struct ServeRequest {
  std::string method;
  std::string path;  // without the query, percent signs as they came
  std::string body;
};

struct Response {
  int status = 200;
  std::string body;
  std::string content_type = "application/json";
};

class Reply {
 public:
  Reply() = default;
  Reply(const Reply&) = delete;
  Reply& operator=(const Reply&) = delete;
  virtual ~Reply();

  // Either one whole response,
  virtual void send(Response response) = 0;
  // or a stream of server-sent events with status 200.
  virtual void begin_stream() = 0;
  virtual void write(const std::string& piece) = 0;
  virtual void end_stream() = 0;
  // `gone` is called, once and from any thread, when the client leaves before the end; at once when it has left.
  virtual void when_gone(std::function<void()> gone) = 0;

  // Shown in the log.
  std::atomic<int64_t> tokens_read{0};
  std::atomic<int64_t> tokens_generated{0};
};

}  // namespace quire
