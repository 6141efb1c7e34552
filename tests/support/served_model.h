// The service of quire serve inside a test, over a model that was trained for a few steps.
#pragma once

#include <condition_variable>
#include <thread>

#include "tests/support/temporary_directory.h"
#include "tests/support/tiny_run.h"
#include "tests/support/training_run.h"
#include "trainers/serve/service.h"
#include "trainers/serve/worker_threads.h"
#include "trainers/setup/evaluation_config.h"

namespace quire::test {

using Json = nlohmann::ordered_json;

class CollectedReply : public Reply {
 public:
  void send(Response response) override {
    const std::lock_guard lock(mutex_);
    response_ = std::move(response);
    done_ = true;
    changed_.notify_all();
  }
  void begin_stream() override {}
  void write(const std::string& piece) override {
    const std::lock_guard lock(mutex_);
    response_.body += piece;
  }
  void end_stream() override {
    const std::lock_guard lock(mutex_);
    done_ = true;
    changed_.notify_all();
  }
  void when_gone(std::function<void()> gone) override { gone_ = std::move(gone); }
  Response wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    return response_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  Response response_;
  bool done_ = false;
  std::function<void()> gone_;
};

// A model that was trained for a few steps.
struct Trained {
  explicit Trained(const std::vector<std::string>& settings) {
    write_corpus(folder / "corpus.h5",
                 {{"train", texts_of_lengths({300, 7, 90, 41, 150})}, {"valid", texts_of_lengths({60, 5, 33})}});
    std::vector<std::string> overrides{"data.corpus=" + (folder / "corpus.h5").string(), "optimizer.lr=0.03",
                                       "model.mlp={kind: swiglu, hidden: 32}"};
    overrides.insert(overrides.end(), settings.begin(), settings.end());
    const auto config = parse_config<RunConfig>(kTinyConfig, "tiny", overrides);
    corpus = Corpus::open(folder / "corpus.h5");
    TrainingRun run(config, *corpus);
    run.losses(6);
    const CheckpointReader reader = open_checkpoint(run.save(folder / "checkpoints"));
    model = std::make_unique<LoadedModel>(reader, evaluation_config(checkpoint_config(reader)), Weights::trained);
  }
  TemporaryDirectory folder;
  std::unique_ptr<Corpus> corpus;
  std::unique_ptr<LoadedModel> model;
};

class Served {
 public:
  explicit Served(Trained& trained, const SessionLimits& sessions = {}, int64_t rows = 8)
      : workers_(std::make_unique<WorkerThreads>(1)),
        service_(*trained.model, {.engine = {.rows = rows}, .sessions = sessions}, metrics_,
                 [this](std::function<void()> task) { workers_->post(std::move(task)); }),
        engine_([this] { service_.engine().run(); }) {}
  ~Served() {
    service_.engine().stop();
    engine_.join();
    workers_.reset();
  }
  std::shared_ptr<CollectedReply> begin(const std::string& path, const Json& fields) {
    auto reply = std::make_shared<CollectedReply>();
    service_.handle({"POST", path, fields.dump()}, reply);
    return reply;
  }
  Json ask(const std::string& path, const Json& fields, int status = 200) {
    const Response response = begin(path, fields)->wait();
    EXPECT_EQ(response.status, status) << response.body;
    return Json::parse(response.body);
  }
  Service& service() { return service_; }
  Json complete(const Json& fields) { return ask("/v1/completions", fields).at("choices"); }

 private:
  ServerMetrics metrics_;
  std::unique_ptr<WorkerThreads> workers_;
  Service service_;
  std::thread engine_;
};

}  // namespace quire::test
