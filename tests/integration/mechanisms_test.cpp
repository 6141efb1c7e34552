// The configurations that run the mechanism suite.
#include "tests/support/mechanism_suite.h"

namespace quire::test {
namespace {

const std::vector<std::string> kDropout{
    "model.dropout={embedding: 0.1, attention: 0.2, mlp: 0.3, residual: 0.2, output: 0.1}"};

std::vector<std::string> joined(std::vector<std::string> a, const std::vector<std::string>& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

std::vector<MechanismCase> cases() {
  const std::string position = "model.position.kind=";
  const std::string window = "model.attention.softmax.window=";
  const std::string cache = "model.attention.softmax.carry=";
  const std::string memory = "model.memory=";
  const auto landmark = [](const std::string& options) {
    return "model.attention={kind: landmark, landmark: {" + options + "}}";
  };
  const auto moba = [](const std::string& options) { return "model.attention={kind: moba, moba: {" + options + "}}"; };
  const auto hils = [](const std::string& options) { return "model.attention={kind: hils, hils: {" + options + "}}"; };
  const auto infini = [](const std::string& options) {
    return "model.attention={kind: infini, infini: {" + options + "}}";
  };
  // Normalising what is nearly 0 would make differences of the loss, and roundings, large.
  const auto delta = [](const std::string& options) {
    return "model.attention={kind: delta, delta: {norm_eps: 0.1, " + options + "}}";
  };
  const auto recurrent = [](const std::string& options) {
    return "model.attention={kind: block_recurrent, block_recurrent: {" + options + "}}";
  };
  const auto drt = [](const std::string& options) { return "model.stack={kind: drt, drt: {" + options + "}}"; };
  const std::vector<std::string> xl_hidden{position + "xl", cache + "{kind: hidden, length: 6}"};
  const std::vector<std::string> t5_kv{position + "t5", window + "5", "model.attention.softmax.qk_norm=true",
                                       cache + "{kind: kv}"};
  // Keys learn from the commitment alone: a gradient that differences can find.
  const std::string vq_exact = "straight_through: false, commitment: 1";
  return {
      {"window_none", {position + "none", window + "3"}},
      {"window_t5", {position + "t5", window + "4", "model.attention.softmax.attend_self=false"}},
      {.name = "xl_hidden", .settings = xl_hidden, .other_cache = {cache + "{kind: kv, length: 6}"}},
      {.name = "xl_hidden_window",
       .settings = {position + "xl", window + "5", cache + "{kind: hidden}",
                    "model.position.xl={share_biases: false, clamp: 3}"},
       .other_cache = {cache + "{kind: kv}"}},
      {.name = "xl_kv",
       .settings = {position + "xl", window + "6", cache + "{kind: kv}"},
       .other_cache = {cache + "{kind: hidden}"}},
      {.name = "t5_kv", .settings = t5_kv, .other_cache = {cache + "{kind: hidden}"}},
      {.name = "t5_kv_empty_slots",
       .settings = {position + "t5", cache + "{kind: kv, length: 4}", "model.attention.softmax.carry.mask_empty=false"},
       .concat = false},
      {.name = "post_norm",
       .settings = {position + "xl", cache + "{kind: hidden, length: 5}",
                    "model.norm={kind: layer, placement: post, last: false}",
                    "model.mlp={kind: relu, hidden: 12, bias: true}", "model.head_size=3"},
       .other_cache = {cache + "{kind: kv, length: 5}"}},
      {"untied",
       {position + "none", cache + "{kind: kv, length: 9}",
        "model.embedding={tied: false, scale: true, output_scale: 0.5}",
        "model.mlp={kind: gelu, hidden: 10, bias: false}"}},
      {"trivial_register", {position + "none", memory + "[{kind: trivial_register, layers: [0, 1]}]"}},
      {"trivial_log", {position + "t5", memory + "[{kind: trivial_log, layers: [-1], size: 4}]"}},
      {"trivial_both",
       joined(xl_hidden,
              {memory + "[{kind: trivial_register, layers: [0]}, {kind: trivial_log, layers: [0, 1], size: 9}]"})},
      {"mixture",
       {position + "xl", "model.layers=3", memory + "[{kind: trivial_log, layers: [1], size: 3}]",
        "model.layer_overrides=[{layers: [0], position: {kind: t5, t5: {buckets: 6, max_distance: 8}}, attention: "
        "{softmax: {window: 4, carry: {kind: kv}}}}, "
        "{layers: [1], attention: {softmax: {carry: {kind: hidden, length: 5}}}}, {layers: [-1], position: {kind: "
        "none}}]"}},
      {.name = "rope_kv_grouped",
       .settings = {position + "rope", window + "6", "model.key_heads=1", cache + "{kind: kv}"},
       .other_cache = {cache + "{kind: hidden}"}},
      {.name = "rope_hidden_normalised",
       .settings = {position + "rope", "model.position.rope={base: 100, dims: 2}",
                    "model.attention.softmax.qk_norm=true", cache + "{kind: hidden, length: 6}"},
       .other_cache = {cache + "{kind: kv, length: 6}"}},
      {.name = "rope_biases_rms_by_head",
       .settings = {position + "rope", "model.key_heads=1",
                    "model.attention.softmax={bias: qkv, rms_qk_norm: head, scale: 0.4}",
                    cache + "{kind: hidden, length: 6}"},
       .other_cache = {cache + "{kind: kv, length: 6}"}},
      {.name = "knn_biases_rms_of_all_heads",
       .settings = {position + "t5", "model.attention.softmax={bias: all, rms_qk_norm: all, window: 5}",
                    cache + "{kind: kv}",
                    memory + "[{kind: knn, layers: [1], carry: {length: 9}, top_k: 3, write: evict}]"}},
      {.name = "norm_after",
       .settings = {position + "rope", "model.norm={kind: rms_bias, placement: after}", "model.recompute=attention",
                    cache + "{kind: hidden, length: 5}"},
       .other_cache = {cache + "{kind: kv, length: 5}"}},
      {.name = "norm_both_parallel_drops",
       .settings = joined({position + "xl", "model.norm={placement: both}", "model.residual=parallel",
                           "model.recompute=mlp", cache + "{kind: kv, length: 5}"},
                          kDropout)},
      {"parallel_shifted_landmark",
       {position + "rope", "model.residual=parallel", "model.recompute=blocks", "model.attention.shifted_share=0.25",
        landmark("block: 2, top_k: 2, carry: {length: 4, in_training: true}")}},
      {"learned_positions_padded_vocabulary",
       {position + "none", "model.embedding.learned_positions=64", "model.vocabulary=300",
        "model.mlp={kind: geglu, bias: true}"}},
      {"landmark_yarn_padded_vocabulary",
       {position + "rope", "model.position.rope.scaling={kind: yarn, factor: 4, original_length: 9}",
        "model.vocabulary=301", "model.mlp={kind: gelu_erf, bias: true}",
        landmark("block: 2, top_k: 2, in_loss: true, carry: {length: 4, in_training: true}")}},
      {.name = "knn_longrope_joint",
       .settings = {position + "rope", cache + "{kind: kv, length: 5}",
                    "model.position.rope.scaling={kind: longrope, original_length: 8, length: 24, short_factors: "
                    "[1, 1], long_factors: [1.5, 4]}",
                    memory + "[{kind: knn, layers: [0, 1], carry: {length: 11}, top_k: 4, combine: joint}]"}},
      {.name = "alibi_kv",
       .settings = {position + "alibi", window + "5", cache + "{kind: kv}"},
       .other_cache = {cache + "{kind: hidden}"}},
      {.name = "xl_same_length_grouped",
       .settings = {position + "xl", "model.key_heads=1", "model.attention.softmax.same_length=true",
                    cache + "{kind: hidden, length: 6}", "model.initialization={kind: transformer_xl, std: 0.3}"},
       .other_cache = {cache + "{kind: kv, length: 6}"}},
      {.name = "xl_hidden_bf16", .settings = {position + "xl", cache + "{kind: hidden, length: 6, dtype: bf16}"}},
      {.name = "alibi_kv_bf16_grouped_memory",
       .settings = {position + "alibi", "model.key_heads=1", cache + "{kind: kv, length: 5, dtype: bf16}",
                    memory + "[{kind: trivial_log, layers: [0], size: 4}]"}},
      {.name = "vq_gated_unit",
       .settings = {position + "xl", "model.heads=1", "model.head_size=4", "model.mlp.kind=none",
                    "model.norm.kind=rms_bias", "model.embedding={tied: false, sinusoid: true, output_bias: true}",
                    "model.attention.vq={window: 5, block: 4, codes: 5, value_size: 6, " + vq_exact + "}",
                    "model.attention.kind=vq"}},
      {.name = "vq_one_key_head",
       .settings =
           {position + "alibi", "model.key_heads=1",
            "model.attention.vq={window: 3, block: 2, codes: 3, gate: false, activation: none, learned_scale: true, "
            "reduction: matmul, "
            "codebook: {init: kmeans, rounds: 2, reseed: 0.5}, " +
                vq_exact + "}",
            "model.attention.kind=vq"}},
      {.name = "vq_heads_recomputed",
       .settings = joined({position + "t5", "model.recompute=blocks",
                           "model.attention.vq={block: 4, codes: 4, reduction: scan, current_codewords: true, "
                           "codebook: {init: data, smoothing: 0.1}, " +
                               vq_exact + "}",
                           "model.attention.kind=vq"},
                          {"model.dropout={embedding: 0.1, residual: 0.2, layer: 0.3}"})},
      {.name = "vq_window_alone",
       .settings = {position + "xl",
                    "model.attention.vq={window: 6, block: 4, codes: 4, compressive_cache: false, " + vq_exact + "}",
                    "model.attention.kind=vq"}},
      {.name = "vq_blocks_constant",
       .settings = {position + "none", "model.attention.vq={block: 2, codes: 4, cache_gradient: false, commitment: 1}",
                    "model.attention.kind=vq"}},
      {"vq_beside_softmax",
       {position + "xl", cache + "{kind: hidden, length: 6}",
        "model.layer_overrides=[{layers: [0], attention: {kind: vq, vq: {window: 4, block: 4, "
        "codes: 4, " +
            vq_exact + "}}}]"}},
      {"landmark", {position + "rope", landmark("block: 3")}},
      {"landmark_any_positions",
       {position + "none", "model.key_heads=1", landmark("block: 2, empty_blocks: counted, group_dropout: 0.3")}},
      {"landmark_jumps", {position + "rope", "model.recompute=blocks", landmark("block: 3, jump: 5")}},
      {"landmark_misses",
       {position + "rope", "model.key_heads=1", landmark("block: 2, context_miss: {enabled: true}")}},
      {"landmark_in_loss", {position + "rope", landmark("block: 3, in_loss: true")}},
      {"landmark_ignored",
       {position + "none", "model.embedding={tied: false, output_bias: true, output_scale: 0.5}",
        landmark("block: 2, in_loss: true, ignore_landmarks: true")}},
      {"landmark_retrieves",
       {position + "rope", landmark("block: 2, top_k: 2, carry: {length: 4, in_training: true}"),
        "model.position.rope={layout: interleaved}"}},
      {"landmark_retrieves_by_token",
       {position + "rope", landmark("block: 3, top_k: 1, selection: token, positions: read, "
                                    "carry: {length: 3, in_training: true, place: file, dtype: bf16}")}},
      {"landmark_retrieves_by_head",
       {position + "none", "model.key_heads=1",
        landmark(
            "block: 1, top_k: 3, selection: head, compare: logits, "
            "carry: {length: 9, in_training: true, place: host, dtype: int8}, context_miss: {enabled: true, cutoff: "
            "0.2}")}},
      {"landmark_beside_softmax",
       {position + "rope", cache + "{kind: kv, length: 4}",
        "model.layer_overrides=[{layers: [1], attention: {kind: landmark, landmark: "
        "{block: 4, top_k: 2, carry: {length: 5, in_training: true, dtype: fp8}}}}]"}},
      {.name = "moba", .settings = {position + "rope", moba("block: 2, top_k: 2, carry: {length: 20}")}},
      {.name = "moba_forgets",
       .settings = {position + "rope", "model.key_heads=1", "model.recompute=blocks",
                    moba("block: 3, top_k: 3, carry: {length: 2, place: host}")}},
      {.name = "moba_all", .settings = {position + "none", moba("block: 4, top_k: 9, carry: {length: 30}")}},
      {"moba_in_a_file", {position + "rope", moba("block: 1, top_k: 4, carry: {length: 9, place: file, dtype: bf16}")}},
      {.name = "moba_int8",
       .settings = {position + "rope", moba("block: 2, top_k: 3, carry: {length: 9, place: host, dtype: int8}")},
       .concat = false},
      {.name = "moba_fp8",
       .settings = {position + "none", moba("block: 3, top_k: 2, carry: {length: 9, place: file, dtype: fp8}")},
       .concat = false},
      {"moba_alone", {position + "rope", moba("block: 3, top_k: 2, carry: {length: 0}")}},
      {"moba_alone_near", {position + "none", moba("block: 2, top_k: 2, max_distance: 1, carry: {length: 0}")}},
      {.name = "moba_sees_less",
       .settings = {position + "rope", moba("block: 2, top_k: 3, max_distance: 2, carry: {length: 9}")}},
      {"hils", {position + "rope", hils("chunk: 3, window: 4, top_k: 2, carry: {length: 20}")}},
      {"hils_forgets",
       {position + "none", "model.key_heads=1", "model.recompute=blocks",
        hils("chunk: 3, window: 2, top_k: 3, summary: mean, landmark_query: shared, norm: all, carry: {length: 2, "
             "place: host}")}},
      {"hils_in_a_file",
       {position + "rope", "model.key_heads=1",
        hils(
            "chunk: 3, window: 2, top_k: 1, score_query: full, softmax_one: false, rope_length: 12, carry: {length: 9, "
            "place: file, dtype: bf16}")}},
      {.name = "hils_int8",
       .settings = {position + "rope",
                    hils("chunk: 3, window: 2, top_k: 2, carry: {length: 9, place: file, dtype: int8}")},
       .concat = false},
      {.name = "hils_fp8",
       .settings = {position + "none", "model.key_heads=1",
                    hils("chunk: 3, window: 4, top_k: 2, carry: {length: 9, place: host, dtype: fp8}")},
       .concat = false},
      {"hils_exact",
       {position + "rope", hils("chunk: 4, window: 3, top_k: 2, carry: {length: 9}"),
        "model.layer_overrides=[{layers: [1], attention: {hils: {summary: exact}}}]"}},
      {"hils_beside_windows",
       {position + "rope", "model.recompute=attention",
        hils("chunk: 3, window: 5, top_k: 2, summary: landmark, score_query: none, carry: {length: 9}"),
        "model.layer_overrides=[{layers: [0], attention: {hils: {window_only: true}}}]"}},
      {"infini", {position + "rope", infini("block: 3")}},
      {"infini_delta",
       {position + "xl", "model.key_heads=1", "model.recompute=blocks",
        infini("block: 2, update: delta, empty_gate: local, gate: {kind: query, init: 0.5}, keep: 0.9")}},
      {"infini_window",
       {position + "t5", "model.dropout.attention=0.2", infini("block: 4, window: 5, empty_gate: local")}},
      {"infini_cut", {position + "none", infini("block: 2, update: delta, bptt: 1")}},
      {"infini_without_memory", {position + "alibi", infini("block: 3, update: none")}},
      {"infini_beside_softmax",
       {position + "rope", cache + "{kind: kv, length: 4}",
        "model.layer_overrides=[{layers: [1], attention: {kind: infini, infini: {block: 5}}}]"}},
      {"delta", {position + "none", delta("gates: scalar")}},
      {"delta_channel",
       {position + "none", "model.recompute=blocks",
        delta("gates: channel, heads: 4, key_heads: 2, key_size: 3, value_size: 5, conv_bias: true, rank: 2")}},
      {"delta_gdn2", {position + "none", delta("gates: gdn2, conv: 3, negative: true, decay: {kind: lower}")}},
      {"delta_additive",
       {position + "none",
        delta("rule: additive, gates: channel, conv: 0, output_gate: none, decay: {kind: lower_free}")}},
      {"delta_without_taps", {position + "none", delta("conv: 1, qk_norm: false, output_gate: sigmoid")}},
      {"delta_beside_softmax",
       {position + "rope", cache + "{kind: kv, length: 4}",
        "model.layer_overrides=[{layers: [1], position: {kind: none}, attention: {kind: delta, delta: {norm_eps: "
        "0.1}}}]"}},
      {"block_recurrent", {position + "t5", recurrent("window: 3, states: 4")}},
      {"block_recurrent_dual",
       {position + "none", "model.recompute=blocks",
        recurrent("window: 2, states: 3, update: dual, gate: lstm, bptt: 2")}},
      {"block_recurrent_single",
       {position + "rope", "model.dropout.attention=0.2",
        recurrent("window: 4, states: 2, update: single, gate: full, attend_self: true, previous_window: false")}},
      {"block_recurrent_plain_keys",
       {position + "xl", recurrent("window: 3, states: 2, gate: residual, qk_norm: false")}},
      {"block_recurrent_beside_softmax",
       {position + "alibi", window + "5", cache + "{kind: kv}",
        "model.layer_overrides=[{layers: [1], attention: {kind: block_recurrent, block_recurrent: {window: 5, states: "
        "3}}}]"}},
      {.name = "block_recurrent_zero_keys",
       .settings = {position + "t5", recurrent("window: 3, states: 2, mask_empty: false")},
       .concat = false},
      {"feedback", {position + "t5", recurrent("window: 4, states: 3, feedback: 1")}},
      {"feedback_of_the_first",
       {position + "alibi", "model.recompute=blocks",
        recurrent("window: 2, states: 2, feedback: -2, update: dual, gate: "
                  "lstm")}},
      {.name = "feedback_dropout",
       .settings = {position + "rope", "model.recompute=attention",
                    "model.dropout={attention: 0.2, mlp: 0.1, residual: 0.1}",
                    recurrent("window: 3, states: 2, feedback: 0, update: single, gate: full, attend_self: true, "
                              "previous_window: false, bptt: 2")},
       .concat = false},
      {.name = "feedback_zero_keys",
       .settings = {position + "none", "model.dropout.attention=0.2",
                    recurrent("window: 3, states: 2, feedback: 1, gate: residual, qk_norm: false, mask_empty: false")},
       .concat = false},
      {"knn_gate", joined(t5_kv, {memory + "[{kind: knn, layers: [1], carry: {length: 9}, top_k: 3, gate: 0.4}]"})},
      {"knn_content_gate",
       joined(xl_hidden,
              {memory + "[{kind: knn, layers: [1], carry: {length: 10}, top_k: 3, combine: content_gate, gate: -0.3, "
                        "closed_when_empty: true}]"})},
      {"knn_joint",
       {position + "rope", "model.key_heads=1", cache + "{kind: kv, length: 5}",
        memory +
            "[{kind: knn, layers: [0, 1], carry: {length: 11}, top_k: 20, combine: joint, closed_when_empty: false}]"}},
      {"knn_evicted_added",
       {position + "alibi", window + "4", cache + "{kind: kv, length: 3}",
        memory + "[{kind: knn, layers: [0], carry: {length: 30}, top_k: 4, combine: add, write: evict, least: 2}]"}},
      {"knn_evicted_hidden",
       joined(xl_hidden,
              {memory +
               "[{kind: knn, layers: [1], carry: {length: 6}, top_k: 2, write: evict, closed_when_empty: true}]"})},
      {.name = "knn_strides_stop_forward",
       .settings = {position + "t5", window + "4", cache + "{kind: kv, length: 3}",
                    memory +
                        "[{kind: knn, layers: [0], carry: {length: 5}, top_k: 3, stride: 2, stale: {refresh: 0.4}}, "
                        "{kind: knn, layers: [1], carry: {length: 4}, top_k: 3, stride: 3, write: evict, "
                        "combine: stop_forward}]"}},
      {"knn_bucketed_kept",
       joined(t5_kv, {memory +
                      "[{kind: knn, layers: [0], carry: {length: 8}, top_k: 4, search: bucketed, stale: {keep: 1}}]"})},
      {"knn_refreshed",
       {position + "t5", "model.attention.softmax.qk_norm=true",
        memory + "[{kind: knn, layers: [0, 1], carry: {length: 13}, top_k: 3, stale: {refresh: 0.3}}]"}},
      {.name = "knn_int8",
       .settings =
           joined(xl_hidden, {memory + "[{kind: knn, layers: [1], carry: {length: 12, dtype: int8}, top_k: 3}]"})},
      {.name = "knn_fp8",
       .settings = joined(t5_kv, {memory + "[{kind: knn, layers: [1], carry: {length: 12, dtype: fp8}, top_k: 3}]"})},
      {.name = "knn_bf16_in_a_file",
       .settings = joined(
           t5_kv, {memory + "[{kind: knn, layers: [1], carry: {length: 7, dtype: bf16, place: file}, top_k: 3}]"})},
      {"knn_recomputed_two",
       {position + "t5", "model.recompute=blocks",
        memory + "[{kind: knn, layers: [0], carry: {length: 7, place: host}, top_k: 3}, {kind: trivial_log, layers: "
                 "[0], size: 4}]"}},
      {"fast_weight",
       {position + "t5", memory + "[{kind: fast_weight, layers: [0, 1], chunk: 3, rate: 0.05, weight: 1}]"}},
      {.name = "fast_weight_carried",
       .settings = joined(t5_kv, {memory + "[{kind: fast_weight, layers: [1], chunk: 5, rate: 0.05, weight: 1}]",
                                  "model.recompute=blocks"})},
      {.name = "drt",
       .settings = {position + "alibi", window + "6", cache + "{kind: kv}", "model.layers=3",
                    drt("chunk: 3, top_k: 2, lower_layers: 1, encoder_layers: 1, carry: {length: 40}")}},
      {"drt_published",
       {position + "alibi", window + "6", "model.layers=3",
        drt("chunk: 1, top_k: 2, lower_layers: 1, encoder_layers: 1, carry: {in_training: false}, landmark_projection: "
            "true, "
            "residual: normed, key_heads: 1")}},
      {.name = "drt_forgets",
       .settings = joined(
           t5_kv, {"model.recompute=blocks",
                   drt("chunk: 1, top_k: 3, groups: 1, encoder_layers: 1, carry: {length: 4, place: file}, nearest: 2, "
                       "residual: add, landmark: mean, landmark_norm: false, query_norm: false, "
                       "out_projection: false")})},
      {.name = "drt_cut",
       .settings = joined(
           t5_kv, {drt("chunk: 2, top_k: 2, groups: 1, encoder_layers: 1, carry: {length: 40}, softmax_one: false")}),
       .concat = false},
      {.name = "drt_by_tokens",
       .settings = joined(joined(xl_hidden, kDropout),
                          {"model.recompute=mlp",
                           drt("chunk: 1, top_k: 2, groups: 1, encoder_layers: 0, carry: {length: 9, place: host}")})},
      {.name = "drt_fixed",
       .settings = {position + "none", drt("chunk: 3, top_k: 2, groups: 1, encoder_layers: 1, scores: fixed")}},
      {.name = "drt_int8",
       .settings = joined(t5_kv, {"model.recompute=blocks",
                                  drt("chunk: 2, top_k: 2, groups: 1, encoder_layers: 1, carry: {length: 9, place: "
                                      "file, dtype: int8}")}),
       .concat = false},
      {.name = "drt_fp8",
       .settings =
           {position + "none",
            drt("chunk: 1, top_k: 2, groups: 1, encoder_layers: 0, carry: {length: 9, place: host, dtype: fp8}")},
       .concat = false},
      {"drt_bm25", {position + "none", drt("chunk: 3, top_k: 2, groups: 1, encoder_layers: 1, scores: bm25")}},
      {"drt_bm25_weighs",
       {position + "none", drt("chunk: 1, top_k: 3, groups: 1, encoder_layers: 1, scores: bm25, weights: scores, "
                               "temperature: 3, bm25: {repeated: true}, carry: {length: 4}")}},
      {"drt_uniform",
       {position + "none", drt("chunk: 1, top_k: 2, groups: 1, encoder_layers: 0, scores: bm25, weights: uniform")}},
      {"drt_random",
       {position + "none",
        drt("chunk: 1, top_k: 2, groups: 1, encoder_layers: 1, scores: random, carry: {dtype: bf16}")}},
      {.name = "two_halves",
       .settings = {position + "xl", window + "6", cache + "{kind: kv}",
                    "model.stack={kind: two_halves, two_halves: {chunk: 3, length: 40}}"}},
      {.name = "two_halves_forgets",
       .settings = joined(t5_kv, {"model.layers=3", "model.norm.placement=post", "model.recompute=attention",
                                  "model.stack={kind: two_halves, two_halves: {chunk: 1, length: 3, place: device}}"})},
      {.name = "two_halves_recomputed",
       .settings = joined(joined(xl_hidden, kDropout),
                          {"model.layers=4", "model.recompute=blocks",
                           "model.stack={kind: two_halves, two_halves: {chunk: 3, length: 2, place: device}}"})},
      {.name = "shifted_kv",
       .settings = {position + "xl", window + "6", "model.attention.shifted_share=0.5", cache + "{kind: kv}"},
       .other_cache = {cache + "{kind: hidden}"}},
      {.name = "shifted_all_features_post_norm",
       .settings = {position + "rope", "model.attention.shifted_share=1", cache + "{kind: hidden, length: 6}",
                    "model.norm={kind: layer, placement: post, last: false}", "model.recompute=blocks"},
       .other_cache = {cache + "{kind: kv, length: 6}"}},
      {"shifted_landmark",
       {position + "rope", "model.attention.shifted_share=0.25", "model.recompute=attention",
        "model.attention.kind=landmark",
        "model.attention.landmark={block: 2, top_k: 2, carry: {length: 4, in_training: true}}"}},
      {"shifted_knn",
       joined(t5_kv, {"model.attention.shifted_share=0.5",
                      memory + "[{kind: knn, layers: [0, 1], carry: {length: 9}, top_k: 3, stale: {refresh: 0.3}}]"})},
      {.name = "shifted_vq",
       .settings = {position + "xl", "model.attention.shifted_share=0.5",
                    "model.attention.vq={window: 5, block: 4, codes: 4, " + vq_exact + "}", "model.attention.kind=vq"}},
      {.name = "shifted_drt",
       .settings = {position + "alibi", window + "6", cache + "{kind: kv}", "model.layers=3",
                    "model.layer_overrides=[{layers: [1], attention: {shifted_share: 0.5}}]",
                    drt("chunk: 3, top_k: 2, lower_layers: 1, encoder_layers: 1, carry: {length: 40}")}},
      {"smoothed_with_z_loss",
       {position + "rope", landmark("block: 3, in_loss: true"), "loss={z_weight: 0.01, label_smoothing: 0.1}"}},
      {"muon", {position + "xl", cache + "{kind: kv, length: 4}", "model.embedding.tied=false", "optimizer.kind=muon"}},
      {"layers_of_other_sizes",
       {position + "rope", cache + "{kind: kv, length: 5}", "model.layers=3",
        memory + "[{kind: knn, layers: [0, 1], carry: {length: 9}, top_k: 3}]",
        "model.layer_overrides=[{layers: [1], heads: 3, key_heads: 1, head_size: 2, norm: {kind: layer}, mlp: {kind: "
        "gelu, hidden: 5, bias: true}}, {layers: [-1], heads: 1, norm: {kind: rms_bias, placement: post}, mlp: {kind: "
        "none}, position: {kind: xl}, attention: {softmax: {carry: {kind: hidden}}}}]"}},
      {"layers_of_other_sizes_drt",
       {position + "alibi", window + "6", "model.layers=4", "model.recompute=blocks",
        "model.layer_overrides=[{layers: [0], heads: 1, head_size: 3, mlp: {kind: none}}, {layers: [-1], heads: 4, "
        "head_size: 4, norm: {kind: layer, eps: 0.01}, mlp: {kind: relu, hidden: 3}}]",
        drt("chunk: 3, top_k: 2, encoder_layers: 1, groups: 2, carry: {length: 40}")}},
      {"recompute_blocks", joined(joined(xl_hidden, kDropout), {"model.recompute=blocks"})},
      {"recompute_parts_memory",
       {position + "rope", cache + "{kind: kv, length: 5}", "model.recompute=attention",
        memory + "[{kind: trivial_register, layers: [0]}, {kind: trivial_log, layers: [1], size: 4}]"}},
      {"xl_hidden_dropout", joined(joined(xl_hidden, kDropout), {"model.dropout.position=0.2"})},
      {.name = "t5_kv_dropout", .settings = joined(t5_kv, kDropout)},
  };
}

const std::vector<MechanismParam>& params() {
  static const std::vector<MechanismParam> all = with_packs(cases());
  return all;
}

INSTANTIATE_TEST_SUITE_P(Mechanisms, MechanismReading, ::testing::ValuesIn(params()), name_of_param);
INSTANTIATE_TEST_SUITE_P(Mechanisms, MechanismSplit, ::testing::ValuesIn(padded_of(params())), name_of_param);
INSTANTIATE_TEST_SUITE_P(Mechanisms, MechanismCaches, ::testing::ValuesIn(with_other_cache_of(params())),
                         name_of_param);
INSTANTIATE_TEST_SUITE_P(Mechanisms, MechanismTraining, ::testing::ValuesIn(params()), name_of_param);
INSTANTIATE_TEST_SUITE_P(Mechanisms, MechanismRanks, ::testing::ValuesIn(params()), name_of_param);

}  // namespace
}  // namespace quire::test
