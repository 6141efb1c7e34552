#include "trainers/serve/completion.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "trainers/serve/log_probabilities.h"

namespace quire {

Completion::Completion(CompletionRequest request, const TokenTexts& texts, std::string id, std::string model,
                       std::shared_ptr<Reply> reply, Post post)
    : request_(std::move(request)),
      texts_(texts),
      id_(std::move(id)),
      model_(std::move(model)),
      reply_(std::move(reply)),
      post_(std::move(post)) {}

std::shared_ptr<Choice> Completion::make_choice(size_t prompt, int64_t number,
                                                const std::shared_ptr<const Session>& session) {
  auto choice = std::make_shared<Choice>();
  choice->session = session;
  if (number == 0) choice->text = request_.prompts[prompt].ids;
  choice->sampling = request_.sampling;
  choice->sampling.seed += static_cast<uint64_t>(number);
  choice->stops = request_.stops;
  choice->top = request_.logprobs;
  if (request_.echo && request_.logprobs) choice->first_scored = session ? 0 : 1;
  choice->stream = request_.stream;
  const size_t index = choices_.size();
  // The engine calls these, and drops the choice after on_end.
  choice->on_token = [self = shared_from_this(), index](Choice&) { self->send_piece(index, false); };
  choice->on_end = [self = shared_from_this(), index](Choice& ended) {
    ended.on_token = nullptr;
    if (self->request_.stream) self->send_piece(index, true);
    self->choice_ended();
  };
  return choice;
}

void Completion::start(Engine& engine, const std::shared_ptr<const Session>& session) {
  std::vector<std::shared_ptr<Choice>> first;
  for (size_t prompt = 0; prompt < request_.prompts.size(); ++prompt) {
    for (int64_t number = 0; number < request_.n; ++number) {
      choices_.push_back(make_choice(prompt, number, session));
      if (number == 0) {
        first.push_back(choices_.back());
      } else {
        first.back()->siblings.push_back(choices_.back());
      }
    }
  }
  sent_.resize(choices_.size());
  open_ = choices_.size();
  if (!engine.submit(first)) {
    for (const auto& choice : choices_) choice->on_token = choice->on_end = nullptr;
    throw ServeError(503, "too many requests wait already; send it again later");
  }
  reply_->when_gone([choices = choices_] {
    for (const auto& choice : choices) choice->cancelled = true;
  });
}

void Completion::choice_ended() {
  if (--open_ > 0) return;
  for (const auto& choice : choices_) {
    reply_->tokens_read += choice->tokens_read;
    reply_->tokens_generated += choice->tokens_generated;
  }
  if (request_.stream) return end_stream();
  // A long reply is made on another thread than the one that computes.
  post_([self = shared_from_this()] { self->send_all(); });
}

const Choice* Completion::failed() const {
  const auto found =
      std::find_if(choices_.begin(), choices_.end(), [](const auto& one) { return !one->error.empty(); });
  return found == choices_.end() ? nullptr : found->get();
}

const Choice& Completion::first_of(size_t index) const {
  return *choices_[index - index % static_cast<size_t>(request_.n)];
}

std::string Completion::head() const {
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  return fmt::format("{{\"id\":\"{}\",\"object\":\"text_completion\",\"created\":{},\"model\":{},\"choices\":", id_,
                     std::chrono::duration_cast<std::chrono::seconds>(now).count(), json_text(model_));
}

std::string Completion::usage() const {
  int64_t prompt = 0;
  for (const Prompt& one : request_.prompts) prompt += static_cast<int64_t>(one.ids->size()) - one.hidden;
  int64_t generated = 0;
  for (const auto& choice : choices_) generated += choice->tokens_generated;
  return fmt::format("{{\"prompt_tokens\":{},\"completion_tokens\":{},\"total_tokens\":{}}}", prompt, generated,
                     prompt + generated);
}

std::string Completion::prompt_text(size_t index) const {
  const Prompt& prompt = request_.prompts[index / static_cast<size_t>(request_.n)];
  return texts_.text_of(std::span(*prompt.ids).subspan(static_cast<size_t>(prompt.hidden)));
}

void Completion::add_prompt_tokens(size_t index, LogProbabilities& list) const {
  const Prompt& prompt = request_.prompts[index / static_cast<size_t>(request_.n)];
  const TokenScores& scores = first_of(index).text_scores;
  if (prompt.hidden == 0 && scores.ids.size() < prompt.ids->size()) list.add_unscored(prompt.ids->front());
  list.add(scores, 0, scores.ids.size());
}

std::string Completion::log_probabilities(size_t index) const {
  if (!request_.logprobs) return "null";
  LogProbabilities list(texts_, {});
  if (request_.echo) add_prompt_tokens(index, list);
  const TokenScores& scores = choices_[index]->scores;
  list.add(scores, 0, scores.ids.size());
  return list.json();
}

std::string Completion::choice_json(size_t index) const {
  const Choice& choice = *choices_[index];
  const std::string text = request_.echo ? prompt_text(index) + choice.generated.text() : choice.generated.text();
  return fmt::format("{{\"index\":{},\"text\":{},\"finish_reason\":\"{}\",\"logprobs\":{}}}", index, json_text(text),
                     choice.finish == Finish::stop ? "stop" : "length", log_probabilities(index));
}

void Completion::send_all() {
  if (const Choice* choice = failed()) {
    return reply_->send({choice->status, error_json(choice->status, choice->error)});
  }
  std::string body = head() + "[";
  for (size_t index = 0; index < choices_.size(); ++index) body += (index > 0 ? "," : "") + choice_json(index);
  body += "],\"usage\":" + usage() + "}\n";
  reply_->send({.body = std::move(body)});
}

}  // namespace quire
