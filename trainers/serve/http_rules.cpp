#include "trainers/serve/http_rules.h"

#include <fmt/format.h>

#include <strings.h>
#include <algorithm>
#include <string_view>
#include <vector>

#include "trainers/serve/service.h"

namespace quire {

namespace {

struct Field {
  std::string name;
  std::string value;
};

bool is_token_character(char c) {
  constexpr std::string_view kOthers = "!#$%&'*+-.^_`|~";
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kOthers.find(c) != std::string_view::npos;
}

bool is_good(const Field& field) {
  const bool name = !field.name.empty() && std::all_of(field.name.begin(), field.name.end(), is_token_character);
  return name && std::none_of(field.value.begin(), field.value.end(),
                              [](char c) { return (static_cast<unsigned char>(c) < 0x20U && c != '\t') || c == 0x7F; });
}

std::vector<Field> fields_of(MHD_Connection* connection) {
  std::vector<Field> fields;
  MHD_get_connection_values_n(
      connection, MHD_HEADER_KIND,
      [](void* list, MHD_ValueKind, const char* name, size_t name_size, const char* value, size_t value_size) {
        static_cast<std::vector<Field>*>(list)->push_back(
            {std::string(name, name_size), value == nullptr ? "" : std::string(value, value_size)});
        return MHD_YES;
      },
      &fields);
  return fields;
}

std::vector<std::string> values_of(const std::vector<Field>& fields, const char* name) {
  std::vector<std::string> values;
  for (const Field& field : fields) {
    if (::strcasecmp(field.name.c_str(), name) == 0) values.push_back(field.value);
  }
  return values;
}

void check_length(const std::vector<Field>& fields, int64_t max_body) {
  const std::vector<std::string> lengths = values_of(fields, "Content-Length");
  const std::vector<std::string> encodings = values_of(fields, "Transfer-Encoding");
  if (lengths.size() + encodings.size() > 1) {
    throw ServeError(400, "the length of the body is given twice; send one Content-Length or Transfer-Encoding");
  }
  if (!encodings.empty() && ::strcasecmp(encodings.front().c_str(), "chunked") != 0) {
    throw ServeError(501, "this Transfer-Encoding is not supported; use chunked or Content-Length");
  }
  if (lengths.empty()) return;
  const std::string& length = lengths.front();
  const bool digits = !length.empty() && length.find_first_not_of("0123456789") == std::string::npos;
  if (!digits) throw ServeError(400, "Content-Length is no number");
  constexpr size_t kMaxDigits = 18;
  if (length.size() > kMaxDigits || std::stoll(length) > max_body) {
    throw ServeError(413, fmt::format("the body has more than {} bytes; send less, or start the server with a larger "
                                      "--max-body",
                                      max_body));
  }
}

// The host of "host:port", "[::1]:port" or "http://host:port".
std::string host_of(std::string text) {
  if (const size_t scheme = text.find("://"); scheme != std::string::npos) text.erase(0, scheme + 3);
  if (text.starts_with('[')) return text.substr(1, text.find(']') - 1);
  return text.substr(0, text.rfind(':'));
}

// Without a token, a page in a browser of this machine must not reach the server: neither by its own name for this
// machine nor by a request that the browser sends for it.
void check_origin(const std::vector<Field>& fields) {
  const std::vector<std::string> hosts = values_of(fields, "Host");
  const std::vector<std::string> origins = values_of(fields, "Origin");
  for (const auto* values : {&hosts, &origins}) {
    for (const std::string& value : *values) {
      if (is_loopback(host_of(value))) continue;
      throw ServeError(403, "without a token this server answers to localhost only; start it with --token-file");
    }
  }
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  if (a.size() != b.size()) return false;
  unsigned difference = 0;
  for (size_t i = 0; i < a.size(); ++i) difference |= static_cast<unsigned char>(a[i] ^ b[i]);
  return difference == 0;
}

void check_token(const std::vector<Field>& fields, const std::string& token) {
  const std::vector<std::string> values = values_of(fields, "Authorization");
  constexpr std::string_view kBearer = "Bearer ";
  const bool given = values.size() == 1 && values.front().size() > kBearer.size() &&
                     ::strncasecmp(values.front().c_str(), kBearer.data(), kBearer.size()) == 0;
  if (given && equal_in_constant_time(std::string_view(values.front()).substr(kBearer.size()), token)) return;
  throw ServeError(401, "the token is missing or wrong; send the header Authorization: Bearer TOKEN");
}

}  // namespace

bool is_loopback(const std::string& host) {
  if (host == "localhost" || host == "::1") return true;
  return host.starts_with("127.") && host.find_first_not_of("0123456789.") == std::string::npos;
}

void check_head(MHD_Connection* connection, const std::string& method, const std::string& path,
                const std::string& version, const HttpRules& rules) {
  if (version != "HTTP/1.1" && version != "HTTP/1.0") throw ServeError(505, "use HTTP/1.1");
  const std::vector<Field> fields = fields_of(connection);
  if (!std::all_of(fields.begin(), fields.end(), is_good)) throw ServeError(400, "a header field is malformed");
  const size_t hosts = values_of(fields, "Host").size();
  if (hosts > 1 || (hosts == 0 && version == "HTTP/1.1")) throw ServeError(400, "the header needs one Host");
  check_length(fields, rules.max_body);
  if (!values_of(fields, "Transfer-Encoding").empty() && version == "HTTP/1.0") {
    throw ServeError(400, "HTTP/1.0 has no Transfer-Encoding; use HTTP/1.1");
  }
  if (rules.token.empty()) {
    check_origin(fields);
  } else if (path != "/health") {
    check_token(fields, rules.token);
  }
  if (!Service::knows(path)) throw ServeError(404, "there is no such path; /v1/completions is the main one");
  if (method != "GET" && method != "POST") throw ServeError(405, "use GET or POST");
}

}  // namespace quire
