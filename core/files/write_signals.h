// Signals that end a process in the middle of a write, although write() can report the error itself.
#pragma once

namespace quire {

// After this call a write to a pipe without a reader fails with EPIPE instead of SIGPIPE, and a write beyond the limit
// of file size (ulimit -f) fails with EFBIG instead of SIGXFSZ.
void ignore_write_signals();

// Ends the process as SIGPIPE does: quietly, which a pipeline expects of a process whose reader has seen enough.
// Returns only where that signal is blocked.
void end_by_broken_pipe();

}  // namespace quire
