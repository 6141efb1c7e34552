// The configuration of MoBA.
#pragma once

#include "core/config/config.h"
#include "layers/attention_config.h"
#include "layers/state/log_place.h"

namespace quire {

struct MobaConfig {
  int64_t block = 64;
  int64_t top_k = 4;
  int64_t capacity = 1280;
  bool carry = true;
  LogPlace place = LogPlace::device;
  StateType dtype = StateType::automatic;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("block", block,
            {.help = "tokens of a block",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 16,
             .at_evaluation = true,
             .sizes_state = true});
    v.field("top_k", top_k,
            {.help = "blocks that a query reads, its own included",
             .unit = "blocks",
             .min = 1,
             .max = 257,
             .at_evaluation = true});
    v.field(
        "capacity", capacity,
        {.help = "how many blocks before its own a query chooses from, and how many blocks a row stores; older ones "
                 "are dropped",
         .unit = "blocks",
         .min = 1,
         .max = 1 << 26,
         .at_evaluation = true,
         .sizes_state = true});
    v.field("carry", carry,
            {.help = "blocks are carried from one subsequence of a document to the next; false: a subsequence sees "
                     "itself alone, as data.sampling: windows needs it",
             .at_evaluation = true});
    v.field("place", place,
            {.help = "where stored blocks lie; the keys that stand for them lie on the device", .at_evaluation = true});
    v.field("dtype", dtype,
            {.help = "number type of stored blocks; auto: the precision of the run",
             .at_evaluation = true,
             .sizes_state = true});
  }
};

}  // namespace quire
