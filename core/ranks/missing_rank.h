// Messages about a rank that others wait for.
#pragma once

#include <chrono>
#include <string>

#include "core/ranks/control.h"

namespace quire {

// `here` is what a rank does that waits for `absent`. Both return texts such as "rank 2 on b, step 17, saving the
// checkpoint: ...".
std::string ended_while_awaited(const RankActivity& absent, const RankActivity& here);
std::string does_not_answer(const RankActivity& absent, const RankActivity& here, std::chrono::milliseconds deadline);
// Returns the message for a rank whose process is gone, or whose host cannot be reached any more, without a reason from
// that rank.
std::string gone(const RankActivity& absent);

}  // namespace quire
