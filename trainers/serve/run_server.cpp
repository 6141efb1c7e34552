#include "trainers/serve/run_server.h"

#include <thread>

#include "core/background_thread.h"
#include "core/check.h"
#include "core/log.h"

namespace quire {

namespace {

constexpr std::chrono::milliseconds kTick{20};
constexpr int kWorkers = 2;

// Waits until no request is open, at most until the time.
void wait_for_requests(const ServerMetrics& metrics, std::chrono::steady_clock::time_point until) {
  while (metrics.requests_open > 0 && std::chrono::steady_clock::now() < until) std::this_thread::sleep_for(kTick);
}

// Ends the engine when a stop is asked for, after the requests that are open.
class Drain {
 public:
  Drain(Service& service, HttpServer& http, const ServerMetrics& metrics, std::chrono::milliseconds patience,
        const StopRequest& stop)
      : thread_(background_thread([this, &service, &http, &metrics, patience, &stop] {
          while (stop.reason().empty() && !ending_) std::this_thread::sleep_for(kTick);
          service.drain();
          http.stop_listening();
          if (!ending_) {
            log_info(fmt::format("{}: {} requests are finished first", stop.reason(), metrics.requests_open.load()));
          }
          const auto until = std::chrono::steady_clock::now() + patience;
          if (!ending_) wait_for_requests(metrics, until);
          service.engine().stop();
        })) {}
  ~Drain() {
    ending_ = true;
    thread_.join();
  }
  Drain(const Drain&) = delete;
  Drain& operator=(const Drain&) = delete;

 private:
  std::atomic<bool> ending_{false};
  std::thread thread_;
};

}  // namespace

void check_exposure(const HttpOptions& options) {
  constexpr size_t kMinToken = 16;
  const std::string& token = options.rules.token;
  if (token.empty() && !is_loopback(options.host)) {
    fail(ErrorKind::config, "--host {}: other machines could reach the server; give it a token with --token-file",
         options.host);
  }
  if (!token.empty() && token.size() < kMinToken) {
    fail(ErrorKind::config, "--token-file: the token has {} characters; use at least {}, as from openssl rand -hex 16",
         token.size(), kMinToken);
  }
}

void run_server(LoadedModel& model, const ServeOptions& options, const StopRequest& stop) {
  check_exposure(options.http);
  ServerMetrics metrics;
  std::unique_ptr<WorkerThreads> workers;  // ends before what its tasks use
  Service service(model, options.service, metrics,
                  [&workers](std::function<void()> task) { workers->post(std::move(task)); });
  workers = std::make_unique<WorkerThreads>(kWorkers);
  HttpServer http(
      options.http, metrics, *workers,
      [&service](const ServeRequest& request, const std::shared_ptr<Reply>& reply) { service.handle(request, reply); });
  log_info(fmt::format("serving {} (step {}) at {}: {} rows, {:.1f} MB of state each", model.checkpoint().string(),
                       model.step(), http.address(), service.engine().rows(),
                       static_cast<double>(service.engine().reader().row_bytes()) * 1e-6));
  {
    const Drain drain(service, http, metrics, options.drain, stop);
    service.engine().run();
  }
  constexpr std::chrono::seconds kLastAnswers{5};
  wait_for_requests(metrics, std::chrono::steady_clock::now() + kLastAnswers);
  log_info("the server has stopped");
}

}  // namespace quire
