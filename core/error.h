// The exception type of quire. Only main files turn it into an exit code.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace quire {

// The value is the exit code of the program.
enum class ErrorKind : int {
  internal = 1,
  config = 2,  // configuration or usage
  data = 3,
  checkpoint = 4,
  numerics = 5,
  communication = 6,
  disk = 7,
  memory = 8,
};

// The exit code of a run that was asked to stop and can be resumed; this is no error.
inline constexpr int kExitStopped = 75;

// Returns the text for use in a message: a longer one is cut to its beginning and end, and control characters become
// spaces.
inline constexpr size_t kLongestQuote = 200;
std::string shortened(std::string_view text);

// The message is one line that says what is wrong, where, and what to do.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ~Error() override;  // out of line: the type is emitted once, in libquire, and catch works across libraries
  ErrorKind kind() const { return kind_; }
  int exit_code() const { return static_cast<int>(kind_); }

 private:
  ErrorKind kind_;
};

}  // namespace quire
