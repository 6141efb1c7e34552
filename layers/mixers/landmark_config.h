// The configuration of landmark attention.
#pragma once

#include "core/config/config.h"
#include "layers/state/carry_config.h"

namespace quire {

enum class BlockSelection { token_and_head, token, head };
enum class BlockPositions { stingy, read };
enum class BlockComparison { shares, logits };
enum class EmptyBlocks { skipped, counted };

template <>
struct EnumNames<BlockSelection> {
  static constexpr auto value =
      std::to_array<std::pair<BlockSelection, std::string_view>>({{BlockSelection::token_and_head, "token_and_head"},
                                                                  {BlockSelection::token, "token"},
                                                                  {BlockSelection::head, "head"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"every head of every token chooses for itself",
       "all heads of a token read what the head with the highest share "
       "wants",
       "all tokens of a subsequence read, for each head, what the token with the highest share wants. A choice then "
       "depends on later tokens of the subsequence, so that it is no measure of perplexity"});
};
template <>
struct EnumNames<BlockPositions> {
  static constexpr auto value = std::to_array<std::pair<BlockPositions, std::string_view>>(
      {{BlockPositions::stingy, "stingy"}, {BlockPositions::read, "read"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"chosen blocks stand closely before the current block, as published, so that no position is larger than in "
       "training",
       "blocks stand where they were read, however far back"});
};
template <>
struct EnumNames<BlockComparison> {
  static constexpr auto value = std::to_array<std::pair<BlockComparison, std::string_view>>(
      {{BlockComparison::shares, "shares"}, {BlockComparison::logits, "logits"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"shares among the stored landmarks, as published", "products of query and landmark"});
};
template <>
struct EnumNames<EmptyBlocks> {
  static constexpr auto value = std::to_array<std::pair<EmptyBlocks, std::string_view>>(
      {{EmptyBlocks::skipped, "skipped"}, {EmptyBlocks::counted, "counted"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"it is not seen", "it takes its share of attention and gives it to nobody, as in the published code"});
};

struct ContextMissConfig {
  bool enabled = false;
  double controlled = 0.5;
  double cutoff = 0;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("enabled", enabled,
            {.help = "a learned key before the document, whose share of attention is what controlled landmarks divide "
                     "among themselves (Appendix D)"});
    const std::string_view without = enabled ? "" : "only the context-miss token has one; set context_miss.enabled";
    v.field("controlled", controlled,
            {.help = "probability that a landmark is controlled in training; in evaluation those of stored blocks are, "
                     "and those of the subsequence are not",
             .min = 0,
             .max = 1,
             .resumable = true,
             .inapplicable = without});
    v.field("cutoff", cutoff,
            {.help = "queries whose share of the context-miss token is below this read no stored blocks",
             .min = 0,
             .max = 1,
             .at_evaluation = true,
             .inapplicable = without});
  }
};

struct LandmarkCarry : BlockCarry {
  bool in_training = false;
  std::string_view inapplicable = {};  // why nothing is stored

  template <class Visitor>
  void fields(Visitor& v) {
    BlockCarry::fields(v, {.length = "blocks that a row stores (C); when it is full, the oldest are dropped",
                           .unit = "blocks",
                           .place = "where stored blocks lie; their landmarks lie on the device",
                           .inapplicable = inapplicable});
    v.field("in_training", in_training,
            {.help = "blocks of earlier subsequences are stored and read in training, too, which goes beyond the "
                     "published method. Evaluation and generation always store and read them",
             .inapplicable = inapplicable});
  }
};

struct LandmarkConfig {
  int64_t block = 50;
  bool in_loss = false;
  bool ignore_landmarks = false;
  int64_t top_k = 4;
  BlockSelection selection = BlockSelection::token_and_head;
  BlockComparison compare = BlockComparison::shares;
  BlockPositions positions = BlockPositions::stingy;
  EmptyBlocks empty_blocks = EmptyBlocks::skipped;
  double group_dropout = 0;
  int64_t jump = 1;
  ContextMissConfig context_miss;
  LandmarkCarry carry;

  int64_t period() const { return block + 1; }  // landmark included

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("block", block,
            {.help = "tokens of a block (L); the model inserts a landmark behind each block of a document, so that a "
                     "block takes one position more",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 16});
    v.field("in_loss", in_loss,
            {.help = "the model learns to predict landmarks too: the token before a landmark predicts it, and the "
                     "landmark predicts the token behind it (include_landmark_in_loss in the published code). Each "
                     "weighs as much as a token of the text, and is part of no figure but inserted_nll in the metrics; "
                     "it is never generated. false: the token before a landmark predicts the token behind it"});
    v.field("ignore_landmarks", ignore_landmarks,
            {.help = "a token sees all tokens of the subsequence before it as if there were no landmarks, which are "
                     "read and seen by nobody (an ablation). No landmark then learns to find a block, so that none is "
                     "stored or read, in evaluation either, and the model generates no text"});
    const std::string_view ignored = ignore_landmarks ? "with ignore_landmarks no landmark finds a block" : "";
    v.field("top_k", top_k,
            {.help = "stored blocks that a query reads; 0: none",
             .unit = "blocks",
             .min = 0,
             .max = 256,
             .at_evaluation = true,
             .inapplicable = ignored});
    v.field("selection", selection,
            {.help = "which queries choose blocks together", .at_evaluation = true, .inapplicable = ignored});
    v.field("compare", compare,
            {.help = "what selection: token and head compare across heads and tokens",
             .at_evaluation = true,
             .inapplicable = ignored});
    v.field("positions", positions,
            {.help = "where chosen blocks stand", .at_evaluation = true, .inapplicable = ignored});
    v.field("empty_blocks", empty_blocks,
            {.help = "a landmark without a token before it in the subsequence, which occurs when a subsequence begins "
                     "with a landmark",
             .inapplicable = ignored});
    v.field("group_dropout", group_dropout,
            {.help = "dropout of the shares of landmarks in training",
             .unit = "probability",
             .min = 0,
             .max = 0.999,
             .resumable = true,
             .inapplicable = ignored});
    v.field("jump", jump,
            {.help = "in training, positions advance by a random number from 1 to this behind a landmark (Appendix E, "
                     "which has 100); 1: they do not. Evaluate with positions: read",
             .unit = "positions",
             .min = 1,
             .max = 1 << 20,
             .resumable = true});
    v.section("context_miss", context_miss, "the context-miss token");
    carry.inapplicable = ignored;
    v.section("carry", carry, "blocks that are carried from one subsequence of a document to the next");
  }
  void check(ConfigChecker& c) const {
    c.require(top_k <= carry.length, top_k == LandmarkConfig().top_k ? "carry.length" : "top_k",
              fmt::format("{} blocks cannot be read of {} that are stored; use a carry.length of at least as many, or "
                          "a smaller top_k",
                          top_k, carry.length));
    c.require(!ignore_landmarks || !context_miss.enabled, "context_miss.enabled",
              "with ignore_landmarks there is no landmark that the context-miss token could control; leave it out");
    c.require(selection != BlockSelection::token_and_head || compare == BlockComparison::shares, "compare",
              "selection: token_and_head compares nothing across tokens or heads; leave it at shares");
  }
};

}  // namespace quire
