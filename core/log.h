// Messages for people, written to stderr and to the run's log file once there is one.
#pragma once

#include <filesystem>
#include <string>

namespace quire {

void log_info(const std::string& text);
void log_warn(const std::string& text);       // stderr: "quire: warning: ..."
void log_error(const std::string& text);      // stderr: "quire: error: ..."; for main files
void log_file_only(const std::string& text);  // for text that the terminal shows in another form

// After this call messages are also appended to the file, with times. Throws Error(disk) when it cannot be opened.
void log_to_file(const std::filesystem::path& path);
// Throws Error(disk) when a message could not be written to the file. Logging itself does not throw, because messages
// come from places that must not.
void require_log_written();

// Marks a thread that speaks for one of several ranks: every rank except 0 shows only warnings and errors, which then
// name it ("rank 2: ..."), and opens no file. A thread without a LogVoice speaks for rank 0.
class LogVoice {
 public:
  explicit LogVoice(int rank);
  ~LogVoice();
  LogVoice(const LogVoice&) = delete;
  LogVoice& operator=(const LogVoice&) = delete;

 private:
  int previous_;
};

// Shows a line below the messages of a terminal, such as a progress bar. An empty text removes it.
void show_status_line(const std::string& text);

}  // namespace quire
