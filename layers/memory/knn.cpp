#include "layers/memory/knn.h"

#include <algorithm>

#include "autograd/functions/basic.h"
#include "autograd/functions/knn.h"

namespace quire {

KnnMemory::KnnMemory(const Scope& scope, const KnnConfig& config, const MixerShape& mixer)
    : name_(scope.path()), scope_(hash_scope(scope.path())), config_(config), mixer_(mixer) {
  if (config.is_gated()) {
    gate_ = scope.param_without_decay("gate", {mixer.heads}, Initializer::constant(config.gate));
  }
  if (config.combine == KnnCombine::content_gate) {
    content_.emplace(scope.child("content"), mixer.width, mixer.heads, Initializer::constant(0));
  }
  declare_logs(scope);
  if (config.search == KnnSearchKind::inverted) {
    const KnnIndexOptions options{.size = mixer.head_size,
                                  .capacity = config.carry.length,
                                  .lists = config.inverted.lists,
                                  .period = config.inverted.period};
    inverted_ = scope.derived_state<InvertedFiles>([options, heads = mixer.key_heads] {
      auto files = std::make_unique<InvertedFiles>();
      for (int64_t head = 0; head < heads; ++head) files->of_heads.emplace_back(options);
      return files;
    });
  }
}

Variable KnnMemory::combine(const Forward& f, const MixerTensors& mixer) {
  const Selected selected = select(f, mixer.q.value());
  const Tensor& index = selected.index;
  const ops::KnnMemory memory = view(f.state);
  Variable mixed;
  Shares shares;
  switch (config_.combine) {
    case KnnCombine::gate:
    case KnnCombine::content_gate:
      mixed = gated(f, mixer, knn_attention(f.tape, mixer.scaled_q, index, memory), shares);
      break;
    case KnnCombine::joint:
      mixed = joint_attention(f.tape, *mixer.attention, *mixer.settings, mixer.scaled_q, index, memory,
                              f.wants_telemetry() || f.wants_retrievals() ? &shares.joint : nullptr);
      break;
    case KnnCombine::add:
      mixed = add(f.tape, knn_attention(f.tape, mixer.scaled_q, index, memory), mixer.local);
      break;
    case KnnCombine::stop_forward:
      mixed = with_gradient_to(f.tape, knn_attention(f.tape, mixer.scaled_q.detached(), index, memory).value(),
                               mixer.local);
      break;
  }
  if (config_.carry.place == LogPlace::file) f.state.forget_pages(values_.log);
  if (f.wants_telemetry()) observe(f, mixer, index, shares);
  if (f.wants_retrievals()) report_retrieved(f, mixer, selected, shares);
  if (f.write_state && config_.write != KnnWrite::never) {
    const std::vector<int64_t> appended = write(f, mixer);
    if (config_.stale.refresh > 0 && f.training) refresh(f, mixer, appended);
  }
  return mixed;
}

Variable KnnMemory::gated(const Forward& f, const MixerTensors& mixer, const Variable& found, Shares& shares) const {
  Tape& tape = f.tape;
  const Shape by_query{f.batch.rows * f.batch.length, 1, mixer_.heads, mixer_.head_size};
  Tensor open;
  if (config_.closed_when_empty) {
    std::vector<uint8_t> reads(f.batch.segment.size(), 0);
    const std::vector<int32_t> length = readable(f.state);
    for (const Segment& segment : f.state.segments()) {
      if (!segment.carried || length[static_cast<size_t>(segment.row)] == 0) continue;
      std::fill_n(reads.begin() + f.batch.at(segment.row, segment.begin), segment.count, uint8_t{1});
    }
    open = Tensor::from(reads, {by_query[0]}, found.value().device());
  }
  Variable content;
  if (content_) {
    content = reshape(tape, (*content_)(tape, mixer.z), {by_query[0], mixer_.heads});
    shares.content = content.value();
  }
  const Variable both =
      gate_heads(tape, reshape(tape, found, by_query), reshape(tape, mixer.local, by_query), gate_, content, open);
  return reshape(tape, both, mixer.local.shape());
}

}  // namespace quire
