// Long work that other ranks may wait for - verifying, reading and writing large files - reports here, at least once
// every few seconds, that it makes progress. Ranks do not take a process that reports progress for one that hangs
// (run.rank_timeout), so background threads must not report.
#pragma once

#include <chrono>
#include <optional>

namespace quire {

void note_progress();  // on any thread; cheap
// Returns the time since the last note_progress() of this process; nothing when there was none.
std::optional<std::chrono::milliseconds> since_progress();

}  // namespace quire
