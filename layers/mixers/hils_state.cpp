// Reads and writes the state that a layer with HiLS attention carries along a document.
#include "autograd/functions/rows.h"
#include "layers/mixers/hils_layer.h"

namespace quire {

namespace {

// Returns the slots of the next entries of all rows.
std::vector<int32_t> heads_on_host(const BlockLog& log, const StateView& state) {
  if (state.device() == kMeta) return std::vector<int32_t>(static_cast<size_t>(state.rows()), 0);
  return log.head(state).to_vector<int32_t>();
}

}  // namespace

Tensor HilsLayer::stored_slots(const Forward& f, const std::vector<int32_t>& places, int64_t stored) const {
  const int64_t rows = f.batch.rows, count = static_cast<int64_t>(places.size()) / rows, slots = log_.slots(f.state);
  const std::vector<int32_t> head = heads_on_host(log_, f.state);
  std::vector<int32_t> numbers;
  for (size_t i = 0; i < places.size(); ++i) {
    const int64_t row = static_cast<int64_t>(i) / count, newest = head[static_cast<size_t>(row)] + slots;
    numbers.push_back(places[i] < 0 ? -1 : static_cast<int32_t>(row * slots + (newest - (stored - places[i])) % slots));
  }
  return Tensor::from(numbers, {rows, count}, f.state.device());
}

void HilsLayer::rotate_back(const Tensor& x, const std::vector<int32_t>& back, int64_t farthest) const {
  Tape idle(false);
  const HilsRotation rotation = this->rotation(farthest + 1, x, config_.regular());
  if (!rotation.table.defined()) return;
  const Tensor positions = Tensor::from(back, {x.dim(0), x.dim(1)}, x.device());
  const Variable rotated = rotation(idle, Variable::constant(x), positions, true);
  ops::copy(x, rotated.value());
}

std::pair<Tensor, Tensor> HilsLayer::fetch(const Forward& f, const std::vector<int32_t>& places, int64_t stored,
                                           DType type) const {
  Tape idle(false);
  const int64_t rows = f.batch.rows, count = static_cast<int64_t>(places.size()) / rows;
  const FetchedEntries fetched = log_.fetch(f.state, stored_slots(f, places, stored), FetchAs::computed);
  await_fetched(f.state.device());
  const auto lines = [&](const Tensor& log, int64_t size) {
    const Variable all = Variable::constant(log.reshape({log.dim(0), log.numel() / log.dim(0)}));
    const Variable found = convert(idle, gather_rows(idle, all, fetched.slot), type);
    return found.value().reshape({rows, count, config_.chunk, shape_.key_heads, size});
  };
  const Tensor keys = lines(fetched.logs[0], shape_.size);
  std::vector<int32_t> back;
  for (const int32_t place : places) back.push_back(place < 0 ? 0 : static_cast<int32_t>(stored) - place);
  rotate_back(keys.reshape({rows, count, config_.chunk * shape_.key_heads, shape_.size}), back, stored);
  return {keys, lines(fetched.logs[1], shape_.value_size)};
}

void HilsLayer::read_state(const Forward& f, const HilsChunks& chunks, const HilsTables& tables, HilsInput& in) const {
  const int64_t rows = tables.rows, stored = tables.stored;
  const DType type = in.q.value().dtype();
  Tape idle(false);
  in.fetch = [this, &f, stored, type](const std::vector<int32_t>& places) { return fetch(f, places, stored, type); };
  if (tables.near > 0) {
    const auto [keys, values] = in.fetch(chunks.near_chunks());
    const auto before_gap = [&](const Tensor& x) {
      const Shape line{rows, tables.near * config_.chunk, x.dim(3), x.dim(4)};
      const Tensor gap = Tensor::zeros({rows, 1, x.dim(3), x.dim(4)}, type, x.device());
      return concatenate(idle, std::vector{Variable::constant(x.reshape(line)), Variable::constant(gap)}, 1).value();
    };
    in.before_keys = before_gap(keys);
    in.before_values = before_gap(values);
  }
  if (stored == 0 || !summaries_.defined()) return;
  const std::vector<int64_t> count = f.state.lengths(summaries_.group), first(count.size(), 0);
  in.summaries = f.state.gather(summaries_, stored, first, count);
  in.biases = f.state.gather(biases_, stored, first, count);
  std::vector<int32_t> back;
  for (int64_t i = 0; i < rows * stored; ++i) back.push_back(static_cast<int32_t>(stored - i % stored));
  rotate_back(in.summaries, back, stored);
}

void HilsLayer::write_state(const Forward& f, const HilsChunks& chunks, const HilsTables& tables,
                            const CarriedBlocks& carried, const HilsHeads& heads, const HilsMix& mix) const {
  Tape idle(false);
  const HilsRotation rotation = this->rotation(tables.positions, heads.k.value());
  const Variable keys = rotation(idle, Variable::constant(heads.unrotated_k.value()), tables.place);
  log_.append_tokens(f, carried, keys.value(), heads.v.value());
  if (!summaries_.defined()) return;
  // The chunks that end in the last document of each row.
  std::vector<int64_t> first(static_cast<size_t>(tables.rows), 0), count = first;
  for (const HilsSpan& span : chunks.spans()) {
    const auto row = static_cast<size_t>(span.row);
    first[row] += std::exchange(count[row], chunks.count_own(span));
  }
  const Tensor& summaries = mix.summaries.keys.value();
  const HilsRotation wide = this->rotation(tables.positions, summaries);
  const Variable unrotated = wide(idle, Variable::constant(summaries), tables.chunk_position, true);
  f.state.append(summaries_, unrotated.value(), first, count);
  f.state.append(biases_, mix.summaries.biases.value(), first, count);
}

}  // namespace quire
