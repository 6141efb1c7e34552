// An error that a client of the server receives as JSON, in the form of OpenAI's interface.
#pragma once

#include <stdexcept>
#include <string>

namespace quire {

class ServeError : public std::runtime_error {
 public:
  // message: one sentence that says what to do. header: a line that the status needs, as "Allow: GET".
  ServeError(int status, const std::string& message, std::string header = "")
      : std::runtime_error(message), status_(status), header_(std::move(header)) {}
  int status() const { return status_; }
  const std::string& header() const { return header_; }

 private:
  int status_;
  std::string header_;
};

// {"error": {"message", "type", "param": null, "code": the status}}
std::string error_json(int status, const std::string& message);

}  // namespace quire
