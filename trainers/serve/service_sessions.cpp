// Requests about sessions, and the page of metrics.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "trainers/serve/service.h"

namespace quire {

namespace {

using Json = nlohmann::json;

std::string session_of(const Json& json) {
  const auto found = json.find("session");
  return parse_session_name(found == json.end() ? Json() : *found);
}

bool flag(const Json& json, const char* name) {
  const auto found = json.find(name);
  if (found == json.end()) return false;
  if (!found->is_boolean()) throw ServeError(400, fmt::format("{} must be true or false", name));
  return found->get<bool>();
}

}  // namespace

void Service::write_session(const ServeRequest& request, const std::shared_ptr<Reply>& reply) {
  const Json json = parse_body(request.body);
  require_fields(json, {"session", "prompt", "append"});
  const std::string name = session_of(json);
  const bool append = flag(json, "append");
  const auto claim = sessions_.claim(name);
  const std::shared_ptr<const Session> before = append ? sessions_.find(name) : nullptr;
  const auto value = json.find("prompt");
  if (value == json.end() || (!value->is_string() && !value->is_array())) {
    throw ServeError(400, "prompt must be a text or a list of token ids");
  }
  const Prompt prompt = parse_prompt(*value, texts_, append);
  const int64_t tokens = static_cast<int64_t>(prompt.ids->size()) + (before ? before->tokens : 0);
  if (limits_.room && tokens > *limits_.room) {
    throw ServeError(400, fmt::format("the session would have {} tokens, but this model has {} positions; send less",
                                      tokens, *limits_.room));
  }
  const auto choice = std::make_shared<Choice>();
  choice->session = before;
  choice->text = prompt.ids;
  choice->keep = true;
  choice->on_end = [this, name, reply, claim](Choice& ended) { keep_session(name, ended, claim, reply); };
  if (!engine_.submit({choice})) throw ServeError(503, "too many requests wait already; send it again later");
  reply->when_gone([choice] { choice->cancelled = true; });
}

// Writing files is left to another thread than the one that computes.
void Service::keep_session(const std::string& name, const Choice& choice,
                           const std::shared_ptr<SessionStore::Claim>& claim, const std::shared_ptr<Reply>& reply) {
  reply->tokens_read += choice.tokens_read;
  post_([this, name, claim, reply, kept = choice.kept, error = choice.error, status = choice.status] {
    reply_to(reply, [&] {
      try {
        if (!error.empty()) throw ServeError(status, error);
        sessions_.put(name, kept);
      } catch (...) {
        claim->release();
        throw;
      }
      claim->release();  // before the client hears of it
      reply->send({.body = fmt::format("{{\"session\":\"{}\",\"tokens\":{},\"bytes\":{}}}\n", name, kept->tokens,
                                       kept->bytes())});
    });
  });
}

void Service::list_sessions(const ServeRequest& /*request*/, const std::shared_ptr<Reply>& reply) {
  std::string list;
  for (const SessionStore::Listed& one : sessions_.list()) {
    list += fmt::format("{}{{\"session\":\"{}\",\"tokens\":{},\"bytes\":{},\"saved\":{}}}", list.empty() ? "" : ",",
                        one.name, one.tokens ? std::to_string(*one.tokens) : "null", one.bytes, one.saved);
  }
  reply->send({.body = "{\"sessions\":[" + list + "]}\n"});
}

void Service::save_session(const ServeRequest& request, const std::shared_ptr<Reply>& reply) {
  const Json json = parse_body(request.body);
  require_fields(json, {"session"});
  const std::string name = session_of(json);
  sessions_.save(name);
  reply->send({.body = fmt::format("{{\"session\":\"{}\",\"saved\":true}}\n", name)});
}

void Service::delete_session(const ServeRequest& request, const std::shared_ptr<Reply>& reply) {
  const Json json = parse_body(request.body);
  require_fields(json, {"session"});
  const std::string name = session_of(json);
  const auto claim = sessions_.claim(name);
  sessions_.erase(name);
  reply->send({.body = fmt::format("{{\"session\":\"{}\",\"deleted\":true}}\n", name)});
}

void Service::metrics_page(const ServeRequest& /*request*/, const std::shared_ptr<Reply>& reply) {
  std::string page;
  const auto add = [&](const char* name, const char* type, const char* help, int64_t value) {
    page += fmt::format("# HELP quire_{0} {1}\n# TYPE quire_{0} {2}\nquire_{0} {3}\n", name, help, type, value);
  };
  const Engine::Load load = engine_.load();
  add("connections", "gauge", "Connections that are open.", metrics_.connections);
  add("requests_open", "gauge", "Requests without a full answer.", metrics_.requests_open);
  add("body_bytes", "gauge", "Bytes of request bodies in memory.", metrics_.body_bytes);
  add("choices_waiting", "gauge", "Texts that wait for a row.", load.waiting);
  add("rows_active", "gauge", "Rows that read or generate.", load.active);
  add("rows", "gauge", "Rows in all.", engine_.rows());
  add("tokens_read_total", "counter", "Tokens read, generated ones included.", load.tokens_read);
  add("tokens_generated_total", "counter", "Tokens generated.", load.tokens_generated);
  add("steps_total", "counter", "Forward passes.", load.steps);
  add("sessions", "gauge", "Sessions in main memory.", sessions_.count());
  add("session_bytes", "gauge", "Bytes of sessions in main memory.", sessions_.bytes());
  page += "# HELP quire_responses_total Responses by status.\n# TYPE quire_responses_total counter\n";
  for (size_t status = 0; status < metrics_.responses.size(); ++status) {
    const int64_t count = metrics_.responses[status];
    if (count > 0) page += fmt::format("quire_responses_total{{status=\"{}\"}} {}\n", status, count);
  }
  reply->send({.body = page, .content_type = "text/plain; version=0.0.4; charset=utf-8"});
}

}  // namespace quire
