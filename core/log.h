// Messages for people, written to stderr and to the run's log file once there is one.
#pragma once

#include <filesystem>
#include <string>

namespace quire {

void log_info(const std::string& text);
void log_warn(const std::string& text);       // stderr: "quire: warning: ..."
void log_error(const std::string& text);      // stderr: "quire: error: ..."; for main files
void log_file_only(const std::string& text);  // for text that the terminal shows in another form

// From now on messages are appended to the file as well, with times. Error(disk) when it cannot be opened.
void log_to_file(const std::filesystem::path& path);
// Error(disk) when a message could not be written to the file. Messages come from places that must not throw.
void require_log_written();

// On a thread that speaks for one of several ranks: every rank but the first (0) shows nothing but its warnings and
// errors, which then name it ("rank 2: ..."), and opens no file. Without a LogVoice a thread speaks for rank 0.
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
