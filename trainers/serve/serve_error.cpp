#include "trainers/serve/serve_error.h"

#include <nlohmann/json.hpp>

#include "trainers/serve/reply.h"

namespace quire {

Reply::~Reply() = default;

std::string error_json(int status, const std::string& message) {
  const char* type = status == 401 || status == 403 ? "authentication_error"
                     : status == 404                ? "not_found_error"
                     : status >= 500                ? "server_error"
                                                    : "invalid_request_error";
  const nlohmann::ordered_json json{
      {"error", {{"message", message}, {"type", type}, {"param", nullptr}, {"code", status}}}};
  return json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace) + "\n";
}

}  // namespace quire
