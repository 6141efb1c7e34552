// The pieces of a streamed completion, as server-sent events. The engine's thread makes them.
#include <fmt/format.h>

#include "trainers/serve/completion.h"
#include "trainers/serve/log_probabilities.h"

namespace quire {

namespace {

std::string event(const std::string& json) {
  return "data: " + json + "\n\n";
}

}  // namespace

void Completion::send_piece(size_t index, bool last) {
  const Choice& choice = *choices_[index];
  if (!choice.error.empty()) return;
  Sent& sent = sent_[index];
  const std::string& generated = choice.generated.text();
  const size_t end = last ? generated.size() : choice.generated.settled();
  const bool begins = !sent.prompt && request_.echo;
  if (!last && end <= sent.text && !begins) return;
  std::string text = begins ? prompt_text(index) : "";
  if (end > sent.text) text += generated.substr(sent.text, end - sent.text);
  std::string list = "null";
  if (request_.logprobs) {
    LogProbabilities part(texts_, sent.characters);
    if (begins) add_prompt_tokens(index, part);
    part.add(choice.scores, sent.tokens, choice.scores.ids.size());
    list = part.json();
    sent.characters = part.text();
  }
  sent = {true, std::max(sent.text, end), choice.scores.ids.size(), sent.characters};
  if (!streaming_) reply_->begin_stream();
  streaming_ = true;
  const char* reason = !last ? "null" : choice.finish == Finish::stop ? "\"stop\"" : "\"length\"";
  reply_->write(event(head() + fmt::format("[{{\"index\":{},\"text\":{},\"finish_reason\":{},\"logprobs\":{}}}]}}",
                                           index, json_text(text), reason, list)));
}

void Completion::end_stream() {
  const Choice* choice = failed();
  if (choice != nullptr && !streaming_)
    return reply_->send({choice->status, error_json(choice->status, choice->error)});
  if (choice != nullptr) {
    std::string error = error_json(choice->status, choice->error);
    error.pop_back();  // the end of the line
    reply_->write(event(error));
  } else if (request_.include_usage) {
    reply_->write(event(head() + "[],\"usage\":" + usage() + "}"));
  }
  reply_->write("data: [DONE]\n\n");
  reply_->end_stream();
}

}  // namespace quire
