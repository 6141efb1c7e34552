#include "layers/stacks/drt_words.h"

#include <algorithm>

#include "layers/pass/host_values.h"

namespace quire {

ChunkWords::ChunkWords(const Scope& scope, const DrtConfig& config)
    : config_(config.bm25), chunk_(config.chunk), farthest_(config.farthest()) {
  if (!config.carry.in_training) return;
  tail_ = scope.state_logs("begun", chunk_);
  begun_ = scope.state_log(tail_, "tokens", {1}, DType::i32);
  // As many as of the landmarks (drt.cpp).
  chunks_ = scope.state_logs("words", config.carry.length + 1, {.grain = chunk_ + 1, .waits = true});
  words_ = scope.state_log(chunks_, "tokens", {chunk_}, DType::i32);
}

std::vector<std::vector<int32_t>> ChunkWords::of_pass(const Forward& f, const ChunkCut& cut,
                                                      const CarriedBlocks& carried) const {
  std::vector<int32_t> begun;
  if (carried.max_tail > 0) {
    std::vector<int64_t> first = f.state.lengths(tail_);
    for (size_t row = 0; row < first.size(); ++row) first[row] -= carried.tail[row];
    begun = f.state.gather(begun_, carried.max_tail, first, carried.tail).to_vector<int32_t>();
  }
  std::vector<std::vector<int32_t>> words(cut.whole.size());
  for (size_t row = 0; row < words.size(); ++row) {
    const auto r = static_cast<int64_t>(row);
    for (const WholeChunk& chunk : cut.whole[row]) {
      for (int64_t t = chunk.mark - chunk_; t < chunk.mark; ++t) {
        const int64_t before = carried.max_tail + t;
        words[row].push_back(t >= 0 ? f.batch.tokens[static_cast<size_t>(f.batch.at(r, t))]
                                    : begun[static_cast<size_t>(r * carried.max_tail + before)]);
      }
    }
  }
  return words;
}

void ChunkWords::write(const Forward& f, const ChunkCut& cut, const std::vector<std::vector<int32_t>>& words) const {
  const Batch& batch = f.batch;
  f.state.append(begun_, Tensor::from(batch.tokens, {batch.rows, batch.length, 1}, f.state.device()));
  const int64_t max_new = std::max<int64_t>(cut.max_chunks, 1);
  std::vector<int32_t> all(static_cast<size_t>(batch.rows * max_new * chunk_), 0);
  std::vector<int64_t> first;
  for (size_t row = 0; row < words.size(); ++row) {
    std::ranges::copy(words[row], all.begin() + static_cast<int64_t>(row) * max_new * chunk_);
    first.push_back(static_cast<int64_t>(cut.whole[row].size()) - cut.of_last[row]);
  }
  f.state.append(words_, Tensor::from(all, {batch.rows, max_new, chunk_}, f.state.device()), first, cut.of_last);
}

Tensor ChunkWords::scores(const Forward& f, const ChunkCut& cut, const CarriedBlocks& carried, DType wide) const {
  const int64_t rows = f.batch.rows, chunks = cut.max_chunks, stored = carried.max_length, all = stored + chunks;
  const Shape shape{rows, chunks, all};
  const bool planned = f.state.device() == kMeta;  // a plan reads no values
  const std::vector<std::vector<int32_t>> words =
      planned ? std::vector<std::vector<int32_t>>(static_cast<size_t>(rows)) : of_pass(f, cut, carried);
  std::vector<int32_t> before;
  if (stored > 0 && !planned) {
    std::vector<int64_t> first = f.state.lengths(chunks_);
    for (size_t row = 0; row < first.size(); ++row) first[row] -= carried.length[row];
    before = f.state.gather(words_, stored, first, carried.length).to_vector<int32_t>();
  }
  if (begun_.defined() && f.write_state) write(f, cut, words);
  if (planned) return Tensor::empty(shape, wide, kMeta);
  const auto chunk_at = [&](const std::vector<int32_t>& of, int64_t n) {
    return std::span(of).subspan(static_cast<size_t>(n * chunk_), static_cast<size_t>(chunk_));
  };
  std::vector<double> scores(static_cast<size_t>(shape.numel()), 0);
  for (int64_t row = 0; row < rows; ++row) {
    const std::vector<WholeChunk>& whole = cut.whole[static_cast<size_t>(row)];
    for (size_t i = 0; i < whole.size();) {
      // The chunks of one document; first are the candidates of which the first one was added.
      Bm25 index(config_, farthest_);
      int64_t first = stored + static_cast<int64_t>(i);
      if (whole[i].carried) {
        const int64_t length = carried.length[static_cast<size_t>(row)];
        first = stored - length;
        for (int64_t n = stored - length; n < stored; ++n) index.add(chunk_at(before, row * stored + n));
      }
      for (const int64_t segment = whole[i].segment; i < whole.size() && whole[i].segment == segment; ++i) {
        const auto query = chunk_at(words[static_cast<size_t>(row)], static_cast<int64_t>(i));
        const std::vector<double> found = index.scores(query);
        std::ranges::copy(found, scores.begin() + (row * chunks + static_cast<int64_t>(i)) * all + first);
        index.add(query);
      }
    }
  }
  return tensor_of(scores, shape, wide, f.state.device());
}

}  // namespace quire
