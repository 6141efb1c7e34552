// The loss of one target of an evaluation.
#pragma once

#include <cstdint>

namespace quire {

struct TargetLoss {
  int64_t document = 0;
  int64_t position = 0;  // of the target in the text; 0 is the first token after BOS
  double nll = 0;        // nats
  int32_t target = 0;    // token id
  int32_t best = 0;      // the most likely one
  bool recalled = false;
};

}  // namespace quire
