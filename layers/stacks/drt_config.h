// The configuration of the DRT stack.
#pragma once

#include <fmt/format.h>

#include "core/config/config.h"
#include "layers/stacks/bm25.h"
#include "layers/state/carry_config.h"

namespace quire {

enum class ChunkScores { learned, fixed, random, bm25, file };
enum class ChunkWeights { learned, scores, uniform };
enum class ChunkLandmark { token, mean };
enum class ReaderResidual { skip, add, normed };

template <>
struct EnumNames<ChunkScores> {
  static constexpr auto value =
      std::to_array<std::pair<ChunkScores, std::string_view>>({{ChunkScores::learned, "learned"},
                                                               {ChunkScores::fixed, "fixed"},
                                                               {ChunkScores::random, "random"},
                                                               {ChunkScores::bm25, "bm25"},
                                                               {ChunkScores::file, "file"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"the best ones, and scores learn through the weights of what was read",
       "the best ones, and no gradient goes through scores (ablation)",
       "chunks are drawn at random, also at evaluation, and weighted by their scores (ablation)",
       "those that share rare tokens with the chunk before, by BM25; nothing about the choice is learned (baseline)",
       "those that scores_file names for the chunk before, by the scores there; nothing about the choice is learned "
       "(another retriever as a baseline)"});
};
template <>
struct EnumNames<ChunkWeights> {
  static constexpr auto value = std::to_array<std::pair<ChunkWeights, std::string_view>>(
      {{ChunkWeights::learned, "learned"}, {ChunkWeights::scores, "scores"}, {ChunkWeights::uniform, "uniform"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"the softmax of the products of landmarks, which learn through them",
       "the softmax of the scores of scores: bm25 or file, which are divided by temperature", "all chunks alike"});
};
template <>
struct EnumNames<ChunkLandmark> {
  static constexpr auto value = std::to_array<std::pair<ChunkLandmark, std::string_view>>(
      {{ChunkLandmark::token, "token"}, {ChunkLandmark::mean, "mean"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"what the chunk encoder makes of the landmark token, as published", "the mean over all positions of the chunk"});
};
template <>
struct EnumNames<ReaderResidual> {
  static constexpr auto value = std::to_array<std::pair<ReaderResidual, std::string_view>>(
      {{ReaderResidual::skip, "skip"}, {ReaderResidual::add, "add"}, {ReaderResidual::normed, "normed"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"x + mlp(norm(x + o)): what was read reaches later layers through the feed-forward layer only, as in the "
       "published code",
       "x + o + mlp(norm(x + o))", "y + mlp(y) with y = norm(x + o)"});
};

struct DrtCarry : BlockCarry {
  bool in_training = true;

  DrtCarry() { length = 1024; }
  template <class Visitor>
  void fields(Visitor& v) {
    BlockCarry::fields(v, {.length = "how many chunks a row stores; older ones are dropped",
                           .unit = "chunks",
                           .place = "where keys and values of stored chunks lie; their landmarks lie on the device"});
    v.field("in_training", in_training,
            {.help = "chunks of earlier subsequences of the document can be read in training. Evaluation and "
                     "generation always carry them; false is the published method, whose subsequences stand alone"});
  }
};

struct DrtConfig {
  int64_t chunk = 64;
  int64_t top_k = 8;
  int64_t groups = 2;
  std::optional<int64_t> lower_layers;
  int64_t encoder_layers = 2;
  std::optional<int64_t> max_distance;
  int64_t nearest = 1;
  double noise = 1;
  ChunkScores scores = ChunkScores::learned;
  Bm25Config bm25;
  std::optional<std::string> scores_file;
  ChunkWeights weights = ChunkWeights::learned;
  double temperature = 1;
  ChunkLandmark landmark = ChunkLandmark::token;
  bool landmark_norm = true;
  bool landmark_projection = false;
  bool softmax_one = true;
  bool query_norm = true;
  bool out_projection = true;
  ReaderResidual residual = ReaderResidual::skip;
  std::optional<int64_t> key_heads;
  DrtCarry carry;

  // Says whether chunks are chosen by scores that no parameter has a part in.
  bool gives_scores() const { return scores == ChunkScores::bm25 || scores == ChunkScores::file; }
  // Returns how many chunks back a chunk can read.
  int64_t farthest() const { return max_distance.value_or(carry.length); }
  int64_t positions() const { return chunk + 1; }  // of a chunk, with its landmark

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("chunk", chunk,
            {.help = "tokens of a chunk (S); the model inserts a landmark behind each chunk of a document, so that a "
                     "chunk takes one position more",
             .unit = "tokens",
             .min = 1,
             .max = 65535});
    v.field("top_k", top_k,
            {.help = "earlier chunks that each chunk reads, for each group (K)",
             .unit = "chunks",
             .min = 1,
             .max = 256,
             .at_evaluation = true,
             .sizes_state = true});
    v.field(
        "groups", groups,
        {.help = "groups of upper layers (G); each chooses its chunks before its first layer", .min = 1, .max = 10000});
    v.field("lower_layers", lower_layers,
            {.help = "layers below the chunk encoder, which read no chunks; none: half of model.layers",
             .min = 1,
             .max = 10000});
    v.field("encoder_layers", encoder_layers,
            {.help = "bidirectional layers of the chunk encoder; 0: chunks are normalised only", .min = 0, .max = 64});
    v.field("max_distance", max_distance,
            {.help = "how many chunks back a chunk can read; none: carry.length",
             .unit = "chunks",
             .min = 1,
             .max = 1 << 26,
             .at_evaluation = true});
    v.field("nearest", nearest,
            {.help = "the least number of chunks from a chunk that is read to the one whose landmark chooses it; the "
                     "chunk behind the landmark reads them",
             .unit = "chunks",
             .min = 1,
             .max = 1 << 26,
             .at_evaluation = true});
    v.field("scores", scores, {.help = "how chunks are chosen"});
    v.field("noise", noise,
            {.help = "factor of the Gumbel noise that is added to learned and fixed scores when chunks are chosen in "
                     "training; 0: the best ones are read (ablation)",
             .min = 0,
             .resumable = true,
             .inapplicable = scores == ChunkScores::learned || scores == ChunkScores::fixed
                                 ? ""
                                 : "only learned and fixed scores have noise"});
    bm25.inapplicable = scores == ChunkScores::bm25 ? "" : "scores is not bm25";
    v.section("bm25", bm25, "the scores of scores: bm25");
    v.field(
        "scores_file", scores_file,
        {.help = "file of scores: file. Each line is a JSON object with the name of a document, the number of one of "
                 "its chunks, the earlier chunks that it asks for, and their scores: {\"document\": \"a\", "
                 "\"chunk\": 2, \"indices\": [0, 1], \"scores\": [0.5, 3]}. An index of -1 is an empty place, whose "
                 "score is not read. The lines of a document come in the order of its chunks, from 0 on",
         .resumable = true,
         .at_evaluation = true,
         .path = true});
    v.field("weights", weights, {.help = "what the weights of the chunks that are read are made of"});
    v.field(
        "temperature", temperature,
        {.help = "scores are divided by this before their softmax; BM25 gives tens to a chunk with a few rare tokens "
                 "in common, so that 1 reads nearly the best one alone",
         .min = 0,
         .min_exclusive = true,
         .inapplicable = weights == ChunkWeights::scores ? "" : "weights is not scores"});
    const std::string_view unread = weights == ChunkWeights::learned ? "" : "only weights: learned reads landmarks";
    v.field("landmark", landmark, {.help = "the vector that stands for a chunk", .inapplicable = unread});
    v.field("landmark_norm", landmark_norm,
            {.help = "landmarks that choose are normalised, with a gain for each group, as in the published code",
             .inapplicable = unread});
    v.field("landmark_projection", landmark_projection,
            {.help = "landmarks that choose are projected by a matrix for each group, and those of chunks by one for "
                     "all, as in the paper",
             .inapplicable = unread});
    v.field("softmax_one", softmax_one,
            {.help = "the softmax over a chunk has one more term, exp(0), which reads nothing; false: no such term, "
                     "which the published code has for chunks of 64"});
    v.field("query_norm", query_norm, {.help = "queries to chunks are projected from normalised states"});
    v.field("out_projection", out_projection, {.help = "what a layer has read of chunks is projected"});
    v.field("residual", residual,
            {.help = "how the feed-forward layer goes on with the residual stream x and what was read, o"});
    v.field("key_heads", key_heads,
            {.help = "key/value heads of chunks, each shared by heads / key_heads query heads; none: model.heads",
             .min = 1,
             .max = 10000});
    v.section("carry", carry, "chunks that are carried from one subsequence of a document to the next");
  }
  void check(ConfigChecker& c) const {
    c.require(top_k <= carry.length, top_k == DrtConfig().top_k ? "carry.length" : "top_k",
              fmt::format("{} chunks cannot be read of {} that are stored; use a carry.length of at least as many, or "
                          "a smaller top_k",
                          top_k, carry.length));
    c.require(weights == ChunkWeights::learned || gives_scores(), "weights",
              "scores that are learned or drawn learn through the weights; only with scores: bm25 or file others are "
              "possible");
    c.require(scores != ChunkScores::file || scores_file.has_value(), "scores",
              "file reads scores from a file; name it with scores_file");
    c.require(scores == ChunkScores::file || !scores_file.has_value(), "scores_file",
              "a file of scores is read with scores: file alone");
    c.require(farthest() <= carry.length, "max_distance", "a chunk can read no more chunks back than carry.length");
  }
};

}  // namespace quire
