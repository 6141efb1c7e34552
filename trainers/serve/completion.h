// One request for continuations: its choices in the engine, and the reply that is made of them.
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trainers/serve/completion_request.h"
#include "trainers/serve/engine.h"
#include "trainers/serve/reply.h"

namespace quire {

// Runs a task on another thread.
using Post = std::function<void(std::function<void()>)>;

class Completion : public std::enable_shared_from_this<Completion> {
 public:
  // texts must outlive this; `id` and `model` are shown in the reply.
  Completion(CompletionRequest request, const TokenTexts& texts, std::string id, std::string model,
             std::shared_ptr<Reply> reply, Post post);

  // Hands the choices to the engine. Throws ServeError(503) when it has no room for them.
  void start(Engine& engine, const std::shared_ptr<const Session>& session);

 private:
  std::shared_ptr<Choice> make_choice(size_t prompt, int64_t number, const std::shared_ptr<const Session>& session);
  void choice_ended();
  void send_all();
  const Choice* failed() const;
  std::string usage() const;
  std::string head() const;
  std::string choice_json(size_t index) const;
  std::string log_probabilities(size_t index) const;
  // Pieces of a stream.
  void send_piece(size_t index, bool last);
  void end_stream();

  // The part of a choice that was sent.
  struct Sent {
    bool prompt = false;
    size_t text = 0;
    size_t tokens = 0;
    CharacterCount characters;
  };
  const Choice& first_of(size_t index) const;
  std::string prompt_text(size_t index) const;
  void add_prompt_tokens(size_t index, class LogProbabilities& list) const;

  CompletionRequest request_;
  const TokenTexts& texts_;
  std::string id_;
  std::string model_;
  std::shared_ptr<Reply> reply_;
  Post post_;
  std::vector<std::shared_ptr<Choice>> choices_;  // n of the first prompt, n of the second, ...
  std::vector<Sent> sent_;
  std::atomic<size_t> open_{0};
  bool streaming_ = false;
};

}  // namespace quire
