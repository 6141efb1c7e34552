// Signals that end a process in the middle of a write, where write() itself can say what is wrong.
#pragma once

namespace quire {

// From now on a write to a pipe without a reader fails with EPIPE instead of SIGPIPE, and one beyond the limit of a
// file's size (ulimit -f) with EFBIG instead of SIGXFSZ.
void ignore_write_signals();

// Ends the process as SIGPIPE does: quietly, which is what a pipeline expects of one whose reader has seen enough.
// Returns only where that signal is blocked.
void end_by_broken_pipe();

}  // namespace quire
