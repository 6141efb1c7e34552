#include "trainers/serve/http_rules.h"

#include <fmt/format.h>

#include <arpa/inet.h>
#include <strings.h>
#include <algorithm>
#include <cctype>
#include <cstring>
#include <string_view>
#include <vector>

#include "trainers/serve/service.h"

namespace quire {

namespace {

struct Field {
  std::string name;
  std::string value;        // without blanks at its end
  const char *begin, *end;  // of the field in the head
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
        std::string text = value == nullptr ? "" : std::string(value, value_size);
        text.erase(text.find_last_not_of(" \t") + 1);
        static_cast<std::vector<Field>*>(list)->push_back(
            {std::string(name, name_size), std::move(text), name, value == nullptr ? nullptr : value + value_size});
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

// The library takes more than others do: line feeds alone, folded lines, NULs, and a line that begins with a colon for
// the end of the head. What it gives us lies in the head as it came, so what it passed over is a gap between two parts.
bool is_without_gaps(MHD_Connection* connection, const RequestLine& line, const std::vector<Field>& fields) {
  const auto* info = MHD_get_connection_info(connection, MHD_CONNECTION_INFO_REQUEST_HEADER_SIZE);
  const char* const query = MHD_get_connection_values(connection, MHD_GET_ARGUMENT_KIND, nullptr, nullptr) > 0
                                ? line.version - 1
                                : line.target + std::strlen(line.target);
  constexpr int kLineEnd = 2;
  bool whole = line.target == line.method + std::strlen(line.method) + 1 && line.version == query + 1;
  const char* at = line.version + std::strlen(line.version) + kLineEnd;
  for (const Field& field : fields) {
    whole = whole && field.begin == at && field.end != nullptr;
    at = field.end == nullptr ? at : field.end + kLineEnd;
  }
  return whole && info != nullptr && line.method + info->header_size == at + kLineEnd;
}

void check_length(const std::vector<Field>& fields, int64_t max_body) {
  const auto is_length = [](const Field& field) { return ::strcasecmp(field.name.c_str(), "Content-Length") == 0; };
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
  const char* const end = std::find_if(fields.begin(), fields.end(), is_length)->end;
  // The library refuses blanks behind it, in its own words.
  const bool digits = !length.empty() && length.find_first_not_of("0123456789") == std::string::npos &&
                      end[-1] != ' ' && end[-1] != '\t';
  if (!digits) throw ServeError(400, "Content-Length is no number");
  constexpr size_t kMaxDigits = 18;
  if (length.size() > kMaxDigits || std::stoll(length) > max_body) {
    throw ServeError(413, fmt::format("the body has more than {} bytes; send less, or start the server with a larger "
                                      "--max-body",
                                      max_body));
  }
}

// Returns the host of "host", "host:port" or "[::1]:port", maybe behind "http://"; empty for anything else.
std::string host_of(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const std::string_view scheme : {"http://", "https://"}) {
    if (text.starts_with(scheme)) text.erase(0, scheme.size());
  }
  const bool six = text.starts_with('[');
  const size_t end = std::min(text.find(six ? "]" : ":"), text.size());
  if (six && end == text.size()) return "";
  std::string host = text.substr(six ? 1 : 0, six ? end - 1 : end);
  const std::string port = text.substr(six ? end + 1 : end);
  if (!port.empty() && (port.front() != ':' || port.find_first_not_of("0123456789", 1) != std::string::npos)) return "";
  if (!six && host.ends_with('.')) host.pop_back();
  return host;
}

// Returns where the path of a target begins, behind "http://host" if that is there.
size_t path_begin(const std::string& target) {
  constexpr size_t kScheme = 7;
  if (::strncasecmp(target.c_str(), "http://", kScheme) != 0) return 0;
  return std::min(target.find('/', kScheme), target.size());
}

// Without a token, a page in a browser of this machine must not reach the server: neither by its own name for this
// machine nor by a request that the browser sends for it.
void check_origin(const std::vector<Field>& fields, const std::string& target) {
  std::vector<std::string> hosts = values_of(fields, "Host");
  if (const size_t path = path_begin(target); path > 0) hosts.push_back(target.substr(0, path));
  for (const std::string& origin : values_of(fields, "Origin")) hosts.push_back(origin);
  for (const std::string& host : hosts) {
    if (is_loopback(host_of(host))) continue;
    throw ServeError(403, "without a token this server answers to localhost only; start it with --token-file");
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
  throw ServeError(401, "the token is missing or wrong; send the header Authorization: Bearer TOKEN",
                   "WWW-Authenticate: Bearer");
}

}  // namespace

bool is_loopback(const std::string& host) {
  if (host == "localhost" || host == "::1") return true;
  in_addr address = {};
  return host.starts_with("127.") && ::inet_pton(AF_INET, host.c_str(), &address) == 1;
}

std::string path_of(const std::string& target) {
  const size_t begin = path_begin(target);
  return begin > 0 && begin == target.size() ? "/" : target.substr(begin);
}

void check_head(MHD_Connection* connection, const RequestLine& line, const HttpRules& rules) {
  const std::string method = line.method, version = line.version, path = path_of(line.target);
  if (version != "HTTP/1.1" && version != "HTTP/1.0") throw ServeError(505, "use HTTP/1.1");
  const std::vector<Field> fields = fields_of(connection);
  if (!std::all_of(fields.begin(), fields.end(), is_good)) throw ServeError(400, "a header field is malformed");
  if (!is_without_gaps(connection, line, fields)) {
    throw ServeError(400,
                     "the head of the request is malformed; send lines of 'Name: value', each with CR LF behind it");
  }
  const size_t hosts = values_of(fields, "Host").size();
  if (hosts > 1 || (hosts == 0 && version == "HTTP/1.1")) throw ServeError(400, "the header needs one Host");
  check_length(fields, rules.max_body);
  if (!values_of(fields, "Transfer-Encoding").empty() && version == "HTTP/1.0") {
    throw ServeError(400, "HTTP/1.0 has no Transfer-Encoding; use HTTP/1.1");
  }
  const std::vector<std::string> codings = values_of(fields, "Content-Encoding");
  if (!codings.empty() && (codings.size() > 1 || ::strcasecmp(codings.front().c_str(), "identity") != 0)) {
    throw ServeError(415, "bodies with a Content-Encoding are not read; send it without");
  }
  if (rules.token.empty()) {
    check_origin(fields, line.target);
  } else if (path != "/health") {
    check_token(fields, rules.token);
  }
  Service::check_route(method, path);
}

}  // namespace quire
