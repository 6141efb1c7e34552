#include "trainers/serve/http_exchange.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>
#include <string_view>
#include <utility>

#include "core/error.h"
#include "core/log.h"
#include "trainers/serve/serve_error.h"

namespace quire {

namespace {

constexpr int64_t kLargeReply = int64_t{1} << 20;
constexpr int64_t kMaxReplies = int64_t{1} << 29;  // of large ones together
constexpr size_t kDropped = size_t{1} << 20;
constexpr size_t kMaxUnread = size_t{4} << 20;  // of a stream; a client that reads more slowly is given up

}  // namespace

HttpExchange::HttpExchange(MHD_Connection* connection, ServerMetrics& metrics, std::string method, std::string path)
    : metrics_(metrics), connection_(connection) {
  constexpr int kClosedRequest = 499;  // until there is an answer
  response_.status = kClosedRequest;
  request_.method = std::move(method);
  request_.path = std::move(path);
}

HttpExchange::~HttpExchange() {
  metrics_.body_bytes -= static_cast<int64_t>(body_bytes_);
  metrics_.reply_bytes -= reply_bytes_;
}

void HttpExchange::add_to_body(const char* bytes, size_t count) {
  request_.body.append(bytes, count);
  body_bytes_ += count;
  metrics_.body_bytes += static_cast<int64_t>(count);
}

ServeRequest HttpExchange::take_request() {
  ServeRequest request{request_.method, request_.path, {}};
  request.body.swap(request_.body);
  return request;
}

void HttpExchange::suspend() {
  counted_ = true;
  ++metrics_.requests_open;
  const std::lock_guard lock(mutex_);
  suspended_ = true;
  MHD_suspend_connection(connection_);
}

void HttpExchange::resume() {
  if (!suspended_ || connection_ == nullptr) return;
  suspended_ = false;
  MHD_resume_connection(connection_);
}

MHD_Result HttpExchange::queue() {
  bool streams = false;
  {
    const std::lock_guard lock(mutex_);
    streams = streams_;
  }
  // No other thread changes the answer any more. Here the library takes the lock under which it calls read_stream, so
  // the mutex must be free.
  return streams ? queue_stream() : queue_response();
}

// The library takes chunks that others read differently, so nothing is taken for a request behind them.
void HttpExchange::end_after_chunks(MHD_Response* response) const {
  if (MHD_lookup_connection_value(connection_, MHD_HEADER_KIND, MHD_HTTP_HEADER_TRANSFER_ENCODING) == nullptr) return;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONNECTION, "close");
}

MHD_Result HttpExchange::queue_response() {
  // The text lives as long as the exchange, which outlives the response.
  MHD_Response* response =
      MHD_create_response_from_buffer(response_.body.size(), response_.body.data(), MHD_RESPMEM_PERSISTENT);
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, response_.content_type.c_str());
  end_after_chunks(response);
  if (response_.status == 503) MHD_add_response_header(response, MHD_HTTP_HEADER_RETRY_AFTER, "1");
  const MHD_Result queued = MHD_queue_response(connection_, static_cast<unsigned>(response_.status), response);
  MHD_destroy_response(response);
  return queued;
}

MHD_Result HttpExchange::queue_stream() {
  constexpr size_t kBlock = 4096;
  MHD_Response* response = MHD_create_response_from_callback(MHD_SIZE_UNKNOWN, kBlock, &read_stream, this, nullptr);
  if (response == nullptr) return MHD_NO;
  MHD_add_response_header(response, MHD_HTTP_HEADER_CONTENT_TYPE, "text/event-stream");
  MHD_add_response_header(response, MHD_HTTP_HEADER_CACHE_CONTROL, "no-cache");
  end_after_chunks(response);
  const MHD_Result queued = MHD_queue_response(connection_, MHD_HTTP_OK, response);
  MHD_destroy_response(response);
  return queued;
}

ssize_t HttpExchange::read_stream(void* self, uint64_t /*position*/, char* buffer, size_t max) {
  auto& exchange = *static_cast<HttpExchange*>(self);
  const std::lock_guard lock(exchange.mutex_);
  const std::string_view stream = std::string_view(exchange.stream_).substr(exchange.stream_begin_);
  if (!stream.empty()) {
    const size_t count = std::min(max, stream.size());
    std::memcpy(buffer, stream.data(), count);
    exchange.stream_begin_ += count;
    // Now and then what was sent is dropped.
    if (count == stream.size() || exchange.stream_begin_ > kDropped) {
      exchange.stream_.erase(0, std::exchange(exchange.stream_begin_, 0));
    }
    return static_cast<ssize_t>(count);
  }
  if (exchange.stream_ended_) return MHD_CONTENT_READER_END_OF_STREAM;
  exchange.suspended_ = true;
  MHD_suspend_connection(exchange.connection_);
  return 0;
}

void HttpExchange::send(Response response) {
  const std::lock_guard lock(mutex_);
  const auto bytes = static_cast<int64_t>(response.body.size());
  if (bytes > kLargeReply) {
    if (metrics_.reply_bytes + bytes > kMaxReplies) {
      response = {503, error_json(503, "too many large answers are on their way; send the request again later")};
    } else {
      metrics_.reply_bytes += bytes;
      reply_bytes_ = bytes;
    }
  }
  response_ = std::move(response);
  resume();
}

void HttpExchange::begin_stream() {
  const std::lock_guard lock(mutex_);
  streams_ = true;
  response_.status = MHD_HTTP_OK;
}

void HttpExchange::write(const std::string& piece) {
  bool unread = false;
  {
    const std::lock_guard lock(mutex_);
    if (connection_ == nullptr || left_) return;
    unread = stream_.size() - stream_begin_ > kMaxUnread;
    if (!unread) stream_ += piece;
    resume();
  }
  if (unread) client_left();
}

void HttpExchange::end_stream() {
  const std::lock_guard lock(mutex_);
  stream_ended_ = true;
  resume();
}

void HttpExchange::when_gone(std::function<void()> gone) {
  {
    const std::lock_guard lock(mutex_);
    if (!left_) {
      gone_ = std::move(gone);
      return;
    }
  }
  gone();
}

void HttpExchange::set_refused(int status) {
  refused_ = true;
  const std::lock_guard lock(mutex_);
  response_.status = status;
}

void HttpExchange::client_left() {
  std::function<void()> gone;
  {
    const std::lock_guard lock(mutex_);
    left_ = true;
    gone.swap(gone_);
  }
  if (gone) gone();
}

void HttpExchange::complete(bool sent, const std::string& client) {
  int status = 0;
  {
    const std::lock_guard lock(mutex_);
    connection_ = nullptr;
    status = response_.status;
    if (sent) gone_ = nullptr;
  }
  if (counted_) --metrics_.requests_open;
  metrics_.count(status);
  if (!sent) client_left();
  const double ms = std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - begin_).count();
  log_info(fmt::format("{} {} {} {} {:.1f} ms, {} read, {} generated{}", client, shortened(request_.method),
                       shortened(request_.path), status, ms, tokens_read.load(), tokens_generated.load(),
                       sent || refused_ ? "" : ", connection lost"));
}

}  // namespace quire
