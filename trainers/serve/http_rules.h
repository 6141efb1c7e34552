// Checks the head of a request before the body is read.
#pragma once

#include <microhttpd.h>

#include <cstdint>
#include <optional>
#include <string>

#include "trainers/serve/serve_error.h"

namespace quire {

struct HttpRules {
  std::string token;  // empty: none is asked for
  int64_t max_body = int64_t{16} << 20;
};

// Points to the words of the request line, in the memory of the head. The target is a path, or http://host/path.
struct RequestLine {
  const char *method, *target, *version;
};

// Returns the path of a target.
std::string path_of(const std::string& target);

// Throws ServeError for a head that two programs could read differently (request smuggling), that announces too large a
// body, that comes from someone who may not ask (token, Host, Origin), or that names no route of the service.
void check_head(MHD_Connection* connection, const RequestLine& line, const HttpRules& rules);

// Says whether an address such as 127.0.0.1, ::1 or localhost means this machine alone.
bool is_loopback(const std::string& host);

}  // namespace quire
