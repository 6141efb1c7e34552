// The configuration of HiLS attention.
#pragma once

#include <fmt/format.h>

#include <algorithm>

#include "core/config/config.h"
#include "layers/state/carry_config.h"

namespace quire {

enum class HilsSummary { prior, mean, landmark, exact };
enum class HilsScoreQuery { low_rank, full, none };
enum class HilsLandmarkQuery { token, shared };
enum class HilsNorm { head, all };

template <>
struct EnumNames<HilsSummary> {
  static constexpr auto value =
      std::to_array<std::pair<HilsSummary, std::string_view>>({{HilsSummary::prior, "prior"},
                                                               {HilsSummary::mean, "mean"},
                                                               {HilsSummary::landmark, "landmark"},
                                                               {HilsSummary::exact, "exact"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"the mean of the chunk's keys as the landmark's query weighs them, and the entropy of these weights",
       "the mean of the chunk's keys, and the same entropy", "the landmark's own key, without a bias",
       "no summary: the true log of the sum of a chunk, of all chunks. This is what the others approximate; it "
       "computes "
       "and stores every product of queries and keys, so that it is for comparisons with short subsequences"});
};
template <>
struct EnumNames<HilsScoreQuery> {
  static constexpr auto value = std::to_array<std::pair<HilsScoreQuery, std::string_view>>(
      {{HilsScoreQuery::low_rank, "low_rank"}, {HilsScoreQuery::full, "full"}, {HilsScoreQuery::none, "none"}});
  static constexpr auto help =
      std::to_array<std::string_view>({"the query before its normalisation, plus two "
                                       "projections of inner size `rank`, normalised anew",
                                       "a projection of its own", "the query itself"});
};
template <>
struct EnumNames<HilsLandmarkQuery> {
  static constexpr auto value = std::to_array<std::pair<HilsLandmarkQuery, std::string_view>>(
      {{HilsLandmarkQuery::token, "token"}, {HilsLandmarkQuery::shared, "shared"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"the score query of the landmark", "one learned query per head, the same for all chunks"});
};
template <>
struct EnumNames<HilsNorm> {
  static constexpr auto value =
      std::to_array<std::pair<HilsNorm, std::string_view>>({{HilsNorm::head, "head"}, {HilsNorm::all, "all"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"each head by itself, all heads with the same gain", "all heads of a token together, as in OLMo"});
};

struct HilsCarry : BlockCarry {
  std::string_view inapplicable = {};  // why nothing is chosen

  template <class Visitor>
  void fields(Visitor& v) {
    BlockCarry::fields(v, {.length = "chunks that a row stores for later subsequences of the document; a query chooses "
                                     "from this many before its own, of the subsequence and of what is carried",
                           .unit = "chunks",
                           .place = "where stored chunks lie; their summaries lie on the device",
                           .inapplicable = inapplicable});
  }
};

struct HilsConfig {
  int64_t chunk = 64;
  int64_t window = 512;
  bool window_only = false;
  int64_t top_k = 8;
  HilsSummary summary = HilsSummary::prior;
  HilsScoreQuery score_query = HilsScoreQuery::low_rank;
  std::optional<int64_t> rank;
  HilsLandmarkQuery landmark_query = HilsLandmarkQuery::token;
  bool softmax_one = true;
  HilsNorm norm = HilsNorm::head;
  double norm_eps = 1e-6;
  std::optional<int64_t> rope_length;
  double rope_turns = 2;
  HilsCarry carry;

  int64_t regular() const { return chunk - 1; }
  // Chunks before that of a token which its window may reach into.
  int64_t chunks_of_window() const { return (window - 1 + chunk - 1) / chunk; }
  int64_t capacity() const { return window_only ? std::max<int64_t>(1, chunks_of_window()) : carry.length; }
  // Returns the first slot of the window of a slot.
  int64_t window_begin(int64_t slot) const { return std::max<int64_t>(0, slot - window + 1) / chunk * chunk; }

  // The numbers that the tables of a pass depend on.
  std::vector<int64_t> numbers() const {
    return {chunk, window, window_only ? 0 : top_k, capacity(), softmax_one ? 1 : 0};
  }

  bool chooses() const { return !window_only; }
  bool summarises() const { return chooses() && summary != HilsSummary::exact; }
  bool has_score_query() const { return summarises() && score_query != HilsScoreQuery::none; }
  // Says whether summaries weigh keys by a query.
  bool asks() const { return chooses() && (summary == HilsSummary::prior || summary == HilsSummary::mean); }
  bool has_shared_query() const { return asks() && landmark_query == HilsLandmarkQuery::shared; }

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("chunk", chunk,
            {.help = "positions of a chunk (S): its tokens, and the landmark that the model inserts behind them",
             .unit = "positions",
             .min = 2,
             .max = 1 << 16});
    v.field("window", window,
            {.help = "a token sees at least this many positions up to itself (W); the window begins where a chunk "
                     "begins, so that it may be up to a chunk longer",
             .unit = "positions",
             .min = 1,
             .max = 1 << 24,
             .at_evaluation = true,
             .sizes_state = true});
    v.field("window_only", window_only,
            {.help = "the layer reads its window alone. Landmarks are masked all the same, so that such layers can "
                     "stand between others that choose chunks"});
    const std::string_view idle = window_only ? "window_only reads no chunks" : "";
    const auto unless = [&](bool applies, std::string_view why) { return !idle.empty() ? idle : applies ? "" : why; };
    v.field("top_k", top_k,
            {.help = "chunks before the window that a query reads (K); the heads of a key head choose together",
             .unit = "chunks",
             .min = 1,
             .max = 256,
             .at_evaluation = true,
             .inapplicable = idle});
    v.field("summary", summary,
            {.help = "what stands for a chunk when it is chosen and weighed", .inapplicable = idle});
    v.field("score_query", score_query,
            {.help = "the query that is compared with summaries",
             .inapplicable = unless(summary != HilsSummary::exact, "summary: exact compares the query itself")});
    v.field("rank", rank,
            {.help = "inner size of score_query: low_rank; none: the size of a head",
             .unit = "features",
             .min = 1,
             .max = 1 << 16,
             .inapplicable = unless(summary != HilsSummary::exact && score_query == HilsScoreQuery::low_rank,
                                    "only score_query: low_rank has one")});
    v.field("landmark_query", landmark_query,
            {.help = "the query that weighs the keys of a chunk in its summary",
             .inapplicable = unless(summary == HilsSummary::prior || summary == HilsSummary::mean,
                                    "this summary has no such query")});
    v.field("softmax_one", softmax_one,
            {.help = "the weights of window and chunks leave room for nothing: a share of exp(0) is lost"});
    v.field("norm", norm, {.help = "how queries and keys are normalised (RMSNorm with a gain) before rotation"});
    v.field("norm_eps", norm_eps, {.help = "number that is added to the mean square", .min = 0, .min_exclusive = true});
    v.field("rope_length", rope_length,
            {.help = "the length of training: pairs of features that turn less than rope_turns times within it are not "
                     "rotated, so that no angle is new in a longer document (HoPE); the first pair always is. none: "
                     "all pairs are rotated",
             .unit = "positions",
             .min = 1,
             .max = 1 << 30});
    v.field("rope_turns", rope_turns,
            {.help = "see rope_length",
             .min = 0,
             .inapplicable = rope_length ? "" : "without rope_length all pairs are rotated"});
    carry.inapplicable = idle;
    v.section("carry", carry, "chunks that are carried from one subsequence of a document to the next");
  }
  void check(ConfigChecker& c) const {
    c.require(window_only || carry.length >= chunks_of_window(),
              window == HilsConfig().window ? "carry.length" : "window",
              fmt::format("a window of {} positions reaches into {} earlier chunks, and {} are stored; use a "
                          "carry.length of at least as many, or a smaller window",
                          window, chunks_of_window(), carry.length));
  }
};

}  // namespace quire
