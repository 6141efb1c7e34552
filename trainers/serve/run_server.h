// Serves a model until it is asked to stop.
#pragma once

#include "trainers/checkpoint/loaded_model.h"
#include "trainers/run/signals.h"
#include "trainers/serve/http_server.h"
#include "trainers/serve/service.h"

namespace quire {

struct ServeOptions {
  HttpOptions http;
  ServiceOptions service;
  std::chrono::milliseconds drain{30000};  // for requests to end after a stop was asked for
};

// Throws Error(config) unless the server is reached from this machine alone or asks for a token.
void check_exposure(const HttpOptions& options);

// Computes on the calling thread. Returns when a stop was asked for and every request has ended or `drain` has passed.
void run_server(LoadedModel& model, const ServeOptions& options, const StopRequest& stop);

}  // namespace quire
