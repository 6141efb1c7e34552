// Answers the requests of a server, apart from the protocol that carries them.
#pragma once

#include <atomic>
#include <memory>
#include <string>

#include "trainers/serve/completion.h"
#include "trainers/serve/server_metrics.h"
#include "trainers/serve/session_store.h"

namespace quire {

struct ServiceOptions {
  std::string name = "quire";  // of the model
  EngineLimits engine;
  SessionLimits sessions;
};

// Calls work() and turns what it throws into a reply.
void reply_to(const std::shared_ptr<Reply>& reply, const std::function<void()>& work);

class Service {
 public:
  // The model and the metrics must outlive this, and tasks given to `post` must end before this is destroyed.
  Service(LoadedModel& model, const ServiceOptions& options, ServerMetrics& metrics, Post post);

  // Answers on the calling thread, or later on another one. Throws nothing: errors are replies.
  void handle(const ServeRequest& request, const std::shared_ptr<Reply>& reply);
  Engine& engine() { return engine_; }
  SessionStore& sessions() { return sessions_; }
  // From now on /health says that the server stops, and nothing is begun.
  void drain() { draining_ = true; }
  // Throws ServeError(404) for an unknown path and ServeError(405) for a method that it does not take.
  static void check_route(const std::string& method, const std::string& path);

 private:
  using Handler = void (Service::*)(const ServeRequest&, const std::shared_ptr<Reply>&);
  struct Route {
    const char* method;
    const char* path;
    Handler handler;
  };
  static const Route* routes_begin();
  static const Route* routes_end();
  static const Route* find_route(const std::string& method, const std::string& path);

  void health(const ServeRequest& request, const std::shared_ptr<Reply>& reply);
  void metrics_page(const ServeRequest& request, const std::shared_ptr<Reply>& reply);
  void models(const ServeRequest& request, const std::shared_ptr<Reply>& reply);
  void tokenizer_info(const ServeRequest& request, const std::shared_ptr<Reply>& reply);
  void tokenize(const ServeRequest& request, const std::shared_ptr<Reply>& reply);
  void detokenize(const ServeRequest& request, const std::shared_ptr<Reply>& reply);
  void complete(const ServeRequest& request, const std::shared_ptr<Reply>& reply);
  void list_sessions(const ServeRequest& request, const std::shared_ptr<Reply>& reply);
  void write_session(const ServeRequest& request, const std::shared_ptr<Reply>& reply);
  void save_session(const ServeRequest& request, const std::shared_ptr<Reply>& reply);
  void delete_session(const ServeRequest& request, const std::shared_ptr<Reply>& reply);
  void keep_session(const std::string& name, const Choice& choice, const std::shared_ptr<SessionStore::Claim>& claim,
                    const std::shared_ptr<Reply>& reply);
  int64_t max_model_len() const;

  LoadedModel& model_;
  ServerMetrics& metrics_;
  Post post_;
  TokenTexts texts_;
  Engine engine_;
  SessionStore sessions_;
  RequestLimits limits_;
  std::atomic<bool> draining_{false};
  std::atomic<int64_t> completions_{0};
};

}  // namespace quire
