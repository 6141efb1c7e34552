// What takes long and what other ranks may wait for - verifying, reading and writing large files - says here that it
// goes on, at least once in some seconds. Ranks do not take a process that says so for one that hangs
// (run.rank_timeout), so nothing that runs beside the work of a rank may say it.
#pragma once

#include <chrono>
#include <optional>

namespace quire {

void note_progress();  // on any thread; cheap
// How long ago this process did, if it ever did.
std::optional<std::chrono::milliseconds> since_progress();

}  // namespace quire
