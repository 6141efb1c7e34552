#include "layers/stacks/drt_words.h"

#include <algorithm>
#include <map>
#include <utility>

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

OfPiece ChunkWords::scores(const Forward& f, const ChunkCut& cut, const CarriedBlocks& carried, DType wide) const {
  const int64_t rows = f.batch.rows, chunks = cut.max_chunks, stored = carried.max_length;
  const Device device = f.state.device();
  const bool planned = device == kMeta;  // a plan reads no values
  const std::vector<std::vector<int32_t>> words =
      planned ? std::vector<std::vector<int32_t>>(static_cast<size_t>(rows)) : of_pass(f, cut, carried);
  std::vector<int32_t> before;
  if (stored > 0 && !planned) {
    std::vector<int64_t> first = f.state.lengths(chunks_);
    for (size_t row = 0; row < first.size(); ++row) first[row] -= carried.length[row];
    before = f.state.gather(words_, stored, first, carried.length).to_vector<int32_t>();
  }
  if (begun_.defined() && f.write_state) write(f, cut, words);
  if (planned) {
    return [=](const BlockPiece& piece) { return Tensor::empty({rows, chunks, piece.size()}, wide, device); };
  }
  const auto chunk_at = [chunk = chunk_](const std::vector<int32_t>& of, int64_t n) {
    return std::span(of).subspan(static_cast<size_t>(n * chunk), static_cast<size_t>(chunk));
  };
  // The chunks of a document of a row, which are the candidates from `first` on.
  struct Document {
    Bm25 index;
    int64_t first;
  };
  std::map<std::pair<size_t, int64_t>, Document> documents;
  for (size_t row = 0; row < words.size(); ++row) {
    for (size_t i = 0; i < cut.whole[row].size(); ++i) {
      const WholeChunk& chunk = cut.whole[row][i];
      const auto number = static_cast<int64_t>(i);
      const auto [found, fresh] =
          documents.try_emplace({row, chunk.segment}, Document{{config_, farthest_}, stored + number});
      auto& [index, first] = found->second;
      if (fresh && chunk.carried) {
        first = stored - carried.length[row];
        for (int64_t n = first; n < stored; ++n) index.add(chunk_at(before, static_cast<int64_t>(row) * stored + n));
      }
      index.add(chunk_at(words[row], number));
    }
  }
  return [=, &cut, documents = std::move(documents)](const BlockPiece& piece) {
    std::vector<double> scores(static_cast<size_t>(rows * chunks * piece.size()), 0);
    for (const auto& [of, document] : documents) {
      const auto& [row, segment] = of;
      for (size_t i = 0; i < cut.whole[row].size(); ++i) {
        if (cut.whole[row][i].segment != segment) continue;
        const int64_t number = static_cast<int64_t>(i), own = stored + number;
        const int64_t first = std::max(piece.first, document.first), last = std::min(piece.last, own);
        if (first >= last) continue;
        const std::vector<double> found = document.index.scores(chunk_at(words[row], number), own - document.first,
                                                                first - document.first, last - document.first);
        const int64_t line = static_cast<int64_t>(row) * chunks + number;
        std::ranges::copy(found, scores.begin() + line * piece.size() + first - piece.first);
      }
    }
    return tensor_of(scores, {rows, chunks, piece.size()}, wide, device);
  };
}

}  // namespace quire
