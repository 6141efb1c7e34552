// What is said of a rank that others wait for.
#pragma once

#include <chrono>
#include <string>

#include "core/ranks/control.h"

namespace quire {

// `here`: what a rank does that waits for `absent`. "rank 2 on b, step 17, saving the checkpoint: ..."
std::string ended_while_awaited(const RankActivity& absent, const RankActivity& here);
std::string does_not_answer(const RankActivity& absent, const RankActivity& here, std::chrono::milliseconds deadline);
// The process of a rank is gone, or its host cannot be reached any more, and it did not say why.
std::string gone(const RankActivity& absent);

}  // namespace quire
