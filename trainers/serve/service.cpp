#include "trainers/serve/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <new>
#include <nlohmann/json.hpp>

#include "core/error.h"
#include "core/files/file_io.h"
#include "trainers/setup/config.h"

namespace quire {

namespace {

using Json = nlohmann::ordered_json;

// Weights, configuration and number type decide what a row carries after a text.
SessionModel session_model(LoadedModel& model, const RowReader& reader) {
  const std::string manifest = read_text_file(model.checkpoint() / "manifest.json", {.kind = ErrorKind::checkpoint});
  const std::string what = manifest + (model.weights() == Weights::average ? "average" : "trained") +
                           model.machine().backend + dump_config(model.config());
  return {checksum_of(std::as_bytes(std::span(what))),
          [&reader](const std::vector<NamedTensor>& counts) { return reader.bytes_of(counts); },
          model.tokenizer().vocabulary_size(), reader.subsequence()};
}

Response json_response(const Json& json) {
  return {.body = json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n"};
}

int status_of(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::config:
    case ErrorKind::data:
      return 400;
    case ErrorKind::disk:
      return 507;
    default:
      return 500;
  }
}

}  // namespace

void reply_to(const std::shared_ptr<Reply>& reply, const std::function<void()>& work) {
  const auto refuse = [&](int status, const std::string& message) {
    reply->send({.status = status, .body = error_json(status, message)});
  };
  try {
    work();
  } catch (const ServeError& error) {
    refuse(error.status(), error.what());
  } catch (const Error& error) {
    refuse(status_of(error.kind()), error.what());
  } catch (const std::bad_alloc&) {
    refuse(503, "the server has too little memory for this request; send a shorter one");
  } catch (const std::exception& error) {
    refuse(500, error.what());
  }
}

const Service::Route* Service::routes_begin() {
  static constexpr std::array kRoutes{
      Route{"GET", "/health", &Service::health},
      Route{"GET", "/metrics", &Service::metrics_page},
      Route{"GET", "/v1/models", &Service::models},
      Route{"GET", "/tokenizer_info", &Service::tokenizer_info},
      Route{"POST", "/tokenize", &Service::tokenize},
      Route{"POST", "/detokenize", &Service::detokenize},
      Route{"POST", "/v1/completions", &Service::complete},
      Route{"GET", "/v1/sessions", &Service::list_sessions},
      Route{"POST", "/v1/sessions", &Service::write_session},
      Route{"POST", "/v1/sessions/save", &Service::save_session},
      Route{"POST", "/v1/sessions/delete", &Service::delete_session},
  };
  static_assert(kRoutes.size() == 11);
  return kRoutes.data();
}

const Service::Route* Service::routes_end() {
  return routes_begin() + 11;
}

// HEAD is answered as GET is, without the body.
const Service::Route* Service::find_route(const std::string& method, const std::string& path) {
  return std::find_if(routes_begin(), routes_end(), [&](const Route& one) {
    return path == one.path && (method == "HEAD" ? "GET" : method) == one.method;
  });
}

void Service::check_route(const std::string& method, const std::string& path) {
  if (find_route(method, path) != routes_end()) return;
  std::string methods;
  for (const char* one : {"GET", "HEAD", "POST"}) {
    if (find_route(one, path) != routes_end()) methods += (methods.empty() ? "" : ", ") + std::string(one);
  }
  if (methods.empty()) throw ServeError(404, "there is no such path; trainers/SERVE.md lists those of this server");
  throw ServeError(405, fmt::format("{} does not take this method; use {}", path, methods), "Allow: " + methods);
}

Service::Service(LoadedModel& model, const ServiceOptions& options, ServerMetrics& metrics, Post post)
    : model_(model),
      metrics_(metrics),
      post_(std::move(post)),
      texts_(model.tokenizer()),
      engine_(model, options.engine),
      sessions_(options.sessions, session_model(model, engine_.reader())) {
  limits_.choices = options.engine.queue;
  limits_.room = engine_.room();
  limits_.model = options.name;
}

void Service::handle(const ServeRequest& request, const std::shared_ptr<Reply>& reply) {
  reply_to(reply, [&] {
    check_route(request.method, request.path);
    if (draining_) throw ServeError(503, "the server is stopping; send the request again later");
    (this->*find_route(request.method, request.path)->handler)(request, reply);
  });
}

void Service::health(const ServeRequest& /*request*/, const std::shared_ptr<Reply>& reply) {
  reply->send(json_response({{"status", "ok"}}));
}

void Service::models(const ServeRequest& /*request*/, const std::shared_ptr<Reply>& reply) {
  const Json model{{"id", limits_.model},
                   {"object", "model"},
                   {"created", 0},
                   {"owned_by", "quire"},
                   {"max_model_len", max_model_len()}};
  reply->send(json_response({{"object", "list"}, {"data", Json::array({model})}}));
}

int64_t Service::max_model_len() const {
  return limits_.room.value_or(limits_.max_tokens);
}

void Service::tokenizer_info(const ServeRequest& /*request*/, const std::shared_ptr<Reply>& reply) {
  reply->send(json_response(
      {{"bos_token", texts_.bos()}, {"eos_token", texts_.eos()}, {"pad_token", nullptr}, {"chat_template", nullptr}}));
}

void Service::complete(const ServeRequest& request, const std::shared_ptr<Reply>& reply) {
  CompletionRequest asked = parse_completion(request.body, texts_, limits_);
  std::shared_ptr<const Session> session;
  if (!asked.session.empty()) {
    session = sessions_.find(asked.session);
    for (const Prompt& prompt : asked.prompts) {
      const int64_t tokens = session->tokens + static_cast<int64_t>(prompt.ids->size());
      if (limits_.room && tokens + std::max<int64_t>(asked.sampling.length - 1, 0) > *limits_.room) {
        throw ServeError(400,
                         fmt::format("session and prompt have {} tokens and max_tokens is {}, but this model has {} "
                                     "positions; send less",
                                     tokens, asked.sampling.length, *limits_.room));
      }
    }
  }
  const std::string id = fmt::format("cmpl-{}", ++completions_);
  std::make_shared<Completion>(std::move(asked), texts_, id, limits_.model, reply, post_)->start(engine_, session);
}

void Service::tokenize(const ServeRequest& request, const std::shared_ptr<Reply>& reply) {
  const nlohmann::json json = parse_body(request.body);
  require_fields(json, {"prompt", "add_special_tokens", "model"});
  require_model(json, limits_.model);
  const auto prompt = json.find("prompt");
  if (prompt == json.end() || !prompt->is_string()) throw ServeError(400, "prompt must be a text");
  const auto specials = json.find("add_special_tokens");
  if (specials != json.end() && !specials->is_boolean()) {
    throw ServeError(400, "add_special_tokens must be true or false");
  }
  std::vector<int32_t> ids = texts_.encode(prompt->get_ref<const std::string&>(), false);
  const bool adds = specials == json.end() || specials->get<bool>();
  const int32_t bos = texts_.tokenizer().bos_id();
  if (adds && (ids.empty() || ids.front() != bos)) ids.insert(ids.begin(), bos);
  const auto count = static_cast<int64_t>(ids.size());
  reply->send({.body = fmt::format("{{\"tokens\":[{}],\"count\":{},\"max_model_len\":{}}}\n", fmt::join(ids, ","),
                                   count, max_model_len())});
}

void Service::detokenize(const ServeRequest& request, const std::shared_ptr<Reply>& reply) {
  const nlohmann::json json = parse_body(request.body);
  require_fields(json, {"tokens", "model"});
  require_model(json, limits_.model);
  const auto tokens = json.find("tokens");
  if (tokens == json.end()) throw ServeError(400, "tokens must be a list of token ids");
  const std::vector<int32_t> ids = parse_ids(*tokens, "tokens", texts_.tokenizer().vocabulary_size());
  reply->send({.body = "{\"prompt\":" + json_text(texts_.text_of(ids)) + "}\n"});
}

}  // namespace quire
