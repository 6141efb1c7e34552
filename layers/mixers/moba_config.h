// The configuration of MoBA.
#pragma once

#include <fmt/format.h>

#include "core/config/config.h"
#include "layers/state/carry_config.h"

namespace quire {

struct MobaCarry : BlockCarry {
  template <class Visitor>
  void fields(Visitor& v) {
    BlockCarry::fields(v, {.length = "how many blocks a row stores for later subsequences of the document; older ones "
                                     "are dropped. 0: a subsequence sees itself alone",
                           .unit = "blocks",
                           .min = 0,
                           .place = "where stored blocks lie; the keys that stand for them lie on the device"});
  }
};

struct MobaConfig {
  int64_t block = 64;
  int64_t top_k = 4;
  std::optional<int64_t> max_distance;
  MobaCarry carry;

  bool carries() const { return carry.length > 0; }
  // Returns how many blocks before its own a query chooses from; none: there is no limit.
  std::optional<int64_t> farthest() const {
    return max_distance || !carries() ? max_distance : std::optional(carry.length);
  }

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
    v.field("max_distance", max_distance,
            {.help = "how many blocks before its own a query chooses from, of the subsequence and of what is carried; "
                     "none: carry.length, or with carry.length: 0 all of the subsequence",
             .unit = "blocks",
             .min = 1,
             .max = 1 << 26,
             .at_evaluation = true,
             .inapplicable = top_k > 1 ? "" : "with top_k: 1 a query reads its own block alone"});
    v.section("carry", carry, "blocks that are carried from one subsequence of a document to the next");
  }
  void check(ConfigChecker& c) const {
    c.require(!carries() || top_k - 1 <= carry.length, top_k == MobaConfig().top_k ? "carry.length" : "top_k",
              fmt::format("{} blocks besides its own cannot be read of {} that are stored; use a carry.length of at "
                          "least as many, or a smaller top_k",
                          top_k - 1, carry.length));
    c.require(!carries() || *farthest() <= carry.length, "max_distance",
              "what a query reads would depend on where a subsequence begins; use at most carry.length");
  }
};

}  // namespace quire
