#include "layers/attention_calls.h"

#include <fmt/format.h>

#include <algorithm>

#include "layers/model_mechanisms.h"

namespace quire {

namespace {

std::string why_not_cudnn(const ModelConfig& model, const LayerConfig& layer) {
  if (layer.position != Position::rope && layer.position != Position::none) {
    return "it has no position terms; use position: rope or none";
  }
  if (!layer.attention.attend_self) return "attend_self: false keeps a token from its own key, which it always shows";
  if (model.dropout.attention > 0) return "dropout.attention draws other random numbers there; set it to 0";
  return "";
}

}  // namespace

std::vector<AttentionCall> attention_calls(const ModelConfig& model, int64_t rows, int64_t subsequence,
                                           bool several_documents, DType type) {
  std::vector<AttentionCall> calls;
  visit_mechanisms(model, [&](const Mechanism& mechanism, const Place& place, const std::string&) {
    if (mechanism.role == Role::memory && mechanism.joins_attention(place) && calls.back().why_not_cudnn.empty()) {
      calls.back().why_not_cudnn = fmt::format("a memory of kind {} joins its attention", mechanism.kind);
    }
    if (mechanism.role != Role::mixer) return;
    const AttentionConfig& attention = place.layer.attention;
    AttentionCall call{.layer = place.index, .implementation = attention.implementation};
    const int64_t carried = attention.cache_length();
    call.problem = {.rows = rows,
                    .queries = subsequence,
                    .carried = std::min(carried, attention.reach().value_or(carried)),
                    .heads = model.heads,
                    .kv_heads = model.heads_of_keys(),
                    .size = model.size_of_head(),
                    .value_size = model.size_of_head(),
                    .window = attention.reach(),
                    .type = type,
                    .several_documents = several_documents};
    call.why_not_cudnn = mechanism.takes_implementation
                             ? why_not_cudnn(model, place.layer)
                             : fmt::format("a mixer of kind {} has kernels of its own", mechanism.kind);
    calls.push_back(call);
  });
  return calls;
}

}  // namespace quire
