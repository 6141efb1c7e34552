// The configuration of vector-quantised attention (Transformer-VQ).
#pragma once

#include "core/config/config.h"
#include "kernels/vq.h"

namespace quire {

enum class VqActivation { silu, none };
enum class CodebookInitialization { normal, data, kmeans };
enum class CodewordType { automatic, f32 };
enum class CommitmentMean { tokens, positions };

template <>
struct EnumNames<VqActivation> {
  static constexpr auto value = std::to_array<std::pair<VqActivation, std::string_view>>(
      {{VqActivation::silu, "silu"}, {VqActivation::none, "none"}});
};
template <>
struct EnumNames<CodebookInitialization> {
  static constexpr auto value =
      std::to_array<std::pair<CodebookInitialization, std::string_view>>({{CodebookInitialization::normal, "normal"},
                                                                          {CodebookInitialization::data, "data"},
                                                                          {CodebookInitialization::kmeans, "kmeans"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"small normal numbers, as published", "keys of the first step, set at the end of that step",
       "as data, followed by codebook.rounds steps in which a codeword becomes the mean of its keys of that step"});
};
template <>
struct EnumNames<CodewordType> {
  static constexpr auto value = std::to_array<std::pair<CodewordType, std::string_view>>(
      {{CodewordType::automatic, "auto"}, {CodewordType::f32, "f32"}});
};
template <>
struct EnumNames<CommitmentMean> {
  static constexpr auto value = std::to_array<std::pair<CommitmentMean, std::string_view>>(
      {{CommitmentMean::tokens, "tokens"}, {CommitmentMean::positions, "positions"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"the tokens of a step", "all positions of a step, padding included, as published"});
};
template <>
struct EnumNames<ops::CodeReduction> {
  static constexpr auto value =
      std::to_array<std::pair<ops::CodeReduction, std::string_view>>({{ops::CodeReduction::serial, "serial"},
                                                                      {ops::CodeReduction::matmul, "matmul"},
                                                                      {ops::CodeReduction::scan, "scan"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"one block after the other", "a product over all pairs of blocks", "pairs of blocks, pairs of pairs, ..."});
};

struct CodebookConfig {
  double decay = 0.99;
  double floor = 0.01;
  double smoothing = 0;
  double reseed = 0;
  CodebookInitialization init = CodebookInitialization::normal;
  int64_t rounds = 10;
  CodewordType dtype = CodewordType::automatic;
  bool frozen = false;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("decay", decay,
            {.help = "decay of the moving averages from which codewords are made: the sum of a codeword's keys and "
                     "their number, updated once a step",
             .min = 0,
             .max = 1,
             .resumable = true});
    v.field("floor", floor,
            {.help = "a codeword is the average sum of its keys divided by their average number, or by `floor` where "
                     "that number is smaller",
             .min = 0,
             .min_exclusive = true});
    v.field("smoothing", smoothing,
            {.help = "number that is added to the count of keys of every codeword (Laplace smoothing)", .min = 0});
    v.field("reseed", reseed,
            {.help = "a codeword whose average number of keys falls below this is replaced by a key of the step; 0: "
                     "never, as published",
             .unit = "keys",
             .min = 0,
             .resumable = true});
    v.field("init", init,
            {.help = "initial codewords; data and kmeans also replace codewords that init.from has loaded"});
    v.field("rounds", rounds,
            {.help = "number of steps of init: kmeans",
             .unit = "steps",
             .min = 1,
             .max = 1000000,
             .inapplicable = init == CodebookInitialization::kmeans ? "" : "init is not kmeans"});
    v.field("dtype", dtype,
            {.help = "number type of the codewords. auto rounds them to the precision of the run, so that a key has "
                     "the same logits in the window and in the cache. Sums, counts and distances are f32 or wider"});
    v.field("frozen", frozen, {.help = "codewords do not change in training", .resumable = true});
  }
};

struct VqConfig {
  int64_t codes = 512;
  int64_t block = 512;
  std::optional<int64_t> window;
  std::optional<int64_t> value_size;
  bool gate = true;
  VqActivation activation = VqActivation::silu;
  bool learned_scale = false;
  bool compressive_cache = true;
  bool cache_gradient = true;
  bool straight_through = true;
  bool current_codewords = false;
  ops::CodeReduction reduction = ops::CodeReduction::serial;
  double commitment = 1e-4;
  CommitmentMean commitment_mean = CommitmentMean::tokens;
  CodebookConfig codebook;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("codes", codes, {.help = "number of codewords of each key head", .min = 1, .max = 1 << 20});
    v.field("block", block,
            {.help = "tokens of a block. Tokens older than the window of a block are read through the compressive "
                     "cache. With data.pack: concat documents begin at multiples of it",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 24,
             .at_evaluation = true});
    v.field("window", window,
            {.help = "tokens before a block that its tokens see one by one; none: one block",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 24,
             .at_evaluation = true});
    v.field("value_size", value_size,
            {.help = "features of a value; none: as many as a key has", .unit = "features", .min = 1, .max = 1 << 20});
    v.field("gate", gate, {.help = "gated attention unit: the result is multiplied by silu of a projection"});
    v.field("activation", activation, {.help = "activation of the values"});
    v.field("learned_scale", learned_scale,
            {.help = "queries are multiplied by a learned scale per head, which begins at 1; false: as published, no "
                     "product of a query and a key exceeds the root of the head size, and the more tokens are read the "
                     "less of the weight can fall on one of them"});
    v.field("compressive_cache", compressive_cache,
            {.help = "tokens behind the window are read through the means of their codewords; false: they are not seen",
             .at_evaluation = true});
    v.field("cache_gradient", cache_gradient,
            {.help = "gradients reach values of earlier blocks of the same subsequence; false: everything before a "
                     "block is constant"});
    v.field(
        "straight_through", straight_through,
        {.help = "the gradient of a codeword goes to its key unchanged; false: keys learn from the commitment alone"});
    v.field("current_codewords", current_codewords,
            {.help = "keys that are carried into a subsequence take the current codewords; false: they keep the "
                     "codewords of the step that made them, as published"});
    v.field("reduction", reduction,
            {.help = "how the caches of a subsequence are summed; results are equal up to rounding",
             .at_evaluation = true,
             .inapplicable = compressive_cache ? "" : "without compressive_cache there are none"});
    v.field("commitment", commitment,
            {.help = "weight of the commitment loss: the mean squared distance between keys and their codewords, "
                     "summed over heads and layers",
             .min = 0,
             .resumable = true});
    v.field("commitment_mean", commitment_mean,
            {.help = "what the commitment loss is averaged over", .resumable = true});
    v.section("codebook", codebook, "the codewords");
  }
};

}  // namespace quire
