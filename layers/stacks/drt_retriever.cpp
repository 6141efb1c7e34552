#include "layers/stacks/drt_retriever.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/rows.h"
#include "kernels/elementwise.h"
#include "layers/host_values.h"

namespace quire {

namespace {

// In (0, 1), from the upper bits.
double uniform(uint32_t bits) {
  return (static_cast<double>(bits >> 8) + 0.5) * 0x1p-24;
}

}  // namespace

ChunkRetriever::ChunkRetriever(const Scope& scope, const ModelConfig& model, const DrtConfig& config, int64_t group)
    : name_(scope.path()),
      random_scope_(hash_scope(scope.path() + ".noise")),
      config_(config),
      group_(group),
      scale_(1 / std::sqrt(static_cast<double>(model.width))) {
  if (config.landmark_norm) norm_.emplace(scope.child("norm"), model);
  if (config.landmark_projection) {
    projection_.emplace(scope.child("query"), model.width, model.width, Initialization(model).matrix(model.width));
  }
}

template <typename Body>
void ChunkRetriever::for_candidates(const ChunkCut& cut, const HeldBlocks& held, Body&& body) const {
  for (size_t r = 0; r < cut.whole.size(); ++r) {
    const std::vector<WholeChunk>& whole = cut.whole[r];
    const auto row = static_cast<int64_t>(r);
    for (size_t i = 0; i < whole.size(); ++i) {
      const auto query = static_cast<int64_t>(i);
      const auto take = [&](int64_t candidate, int64_t number) {
        const int64_t back = whole[i].number - number;
        if (back >= config_.nearest && back <= config_.capacity) body(row, query, candidate, number);
      };
      for (int64_t j = 0; whole[i].carried && j < held.length[r]; ++j) {
        const int64_t age = held.length[r] - j;
        take(held.most - age, held.written[r] - age);
      }
      for (size_t k = 0; k < i; ++k) {
        if (whole[k].segment == whole[i].segment) take(held.most + static_cast<int64_t>(k), whole[k].number);
      }
    }
  }
}

ChunkRetriever::Candidates ChunkRetriever::candidates(const Forward& f, const ChunkCut& cut,
                                                      const HeldBlocks& held) const {
  const int64_t rows = f.batch.rows, all = held.most + cut.most, wanted = config_.top_k;
  const Device device = f.state.device();
  std::vector<int64_t> count(static_cast<size_t>(rows * cut.most), 0);
  const Tensor mask = f.tables->find({hash_scope("chunks.candidates"), {}}, [&] {
    std::vector<uint8_t> kept(static_cast<size_t>(rows * cut.most * all), 0);
    for_candidates(cut, held, [&](int64_t row, int64_t query, int64_t candidate, int64_t) {
      kept[static_cast<size_t>((row * cut.most + query) * all + candidate)] = 1;
      ++count[static_cast<size_t>(row * cut.most + query)];
    });
    return Tensor::from(kept, {rows, cut.most, all}, device);
  });
  const Tensor found = f.tables->find({hash_scope("chunks.found"), {}}, [&] {
    std::vector<uint8_t> kept;
    for (const int64_t candidates : count) {
      for (int64_t k = 0; k < wanted; ++k) kept.push_back(k < candidates ? 1 : 0);
    }
    return Tensor::from(kept, {rows, cut.most, wanted}, device);
  });
  return {mask, found};
}

Tensor ChunkRetriever::noise(const Forward& f, const ChunkCut& cut, const HeldBlocks& held, const Tensor& like,
                             const ChunkHooks& hooks) const {
  const int64_t all = held.most + cut.most;
  std::vector<double> values(static_cast<size_t>(f.batch.rows * cut.most * all), 0);
  for_candidates(cut, held, [&](int64_t row, int64_t query, int64_t candidate, int64_t number) {
    const WholeChunk& chunk = cut.whole[static_cast<size_t>(row)][static_cast<size_t>(query)];
    const auto bits = philox(f.key, random_scope_, static_cast<uint32_t>(f.batch.first_row + row),
                             static_cast<uint32_t>(chunk.mark), static_cast<uint32_t>(number / 4));
    const double u = uniform(bits[static_cast<size_t>(number % 4)]);
    double drawn = config_.scores == ChunkScores::random ? u : -std::log(-std::log(u)) * config_.noise;
    if (hooks.noise) drawn = hooks.noise(group_, row, query, candidate);
    values[static_cast<size_t>((row * cut.most + query) * all + candidate)] = drawn;
  });
  return tensor_of(values, {f.batch.rows, cut.most, all}, like.dtype(), like.device());
}

Variable ChunkRetriever::scores(Tape& tape, const Variable& queries, const Variable& landmarks,
                                const Tensor& stored) const {
  const DType wide = wide_type(queries.value().dtype());
  const Variable a = convert(tape, queries, wide);
  std::vector<Variable> parts;
  if (stored.defined()) {
    Tape unrecorded(false);
    const Variable constant = convert(unrecorded, Variable::constant(stored), wide);
    parts.push_back(matmul(tape, a, constant, {.transpose_b = true}));
  }
  parts.push_back(matmul(tape, a, convert(tape, landmarks, wide), {.transpose_b = true}));
  return scale(tape, parts.size() == 1 ? parts.front() : concatenate(tape, parts, 2), scale_);
}

ChunkLists ChunkRetriever::operator()(const Forward& f, const Variable& x, const ChunkCut& cut, const HeldBlocks& held,
                                      const Variable& landmarks, const Tensor& stored, const ChunkStore* store,
                                      const ChunkHooks& hooks) const {
  Tape& tape = f.tape;
  const int64_t rows = x.dim(0), wanted = config_.top_k;
  const Device device = x.value().device();
  const DType wide = wide_type(x.value().dtype());
  const Shape before{rows, wanted}, chosen{rows, cut.most, wanted}, lists{rows, 1 + cut.most, wanted};
  ops::ChunkPlacing placing;
  placing.index = Tensor::empty(chosen, DType::i32, device);
  placing.age = store == nullptr ? Tensor::zeros(before, DType::i32, device) : store->ages(f.state, group_);
  placing.count = cut.count;
  placing.head = store == nullptr ? Tensor::zeros({rows}, DType::i32, device) : store->head(f.state);
  placing.stored = held.most;
  placing.slots = store == nullptr ? 0 : store->slots(f.state);
  Variable weight =
      Variable::constant(store == nullptr ? Tensor::zeros(before, wide, device) : store->weights(f.state, group_));
  weight = reshape(tape, weight, {rows, 1, wanted});
  if (cut.most > 0) {
    Variable queries = gather_rows(tape, x, cut.marks);
    if (norm_) queries = (*norm_)(tape, queries);
    if (projection_) queries = (*projection_)(tape, queries);
    Variable r = scores(tape, queries, landmarks, stored);
    if (config_.scores == ChunkScores::fixed) r = r.detached();
    const Candidates among = candidates(f, cut, held);
    Tensor wishes = r.value();
    if (config_.scores == ChunkScores::random) {
      wishes = noise(f, cut, held, wishes, hooks);
    } else if (f.training && config_.noise > 0) {
      const Tensor drawn = noise(f, cut, held, wishes, hooks);
      ops::add(drawn, wishes, drawn, 1, 1);
      wishes = drawn;
    }
    placing.index = top_k(wishes, wanted, among.mask);
    const Variable table = reshape(tape, r, {rows, cut.most, r.dim(2), 1});
    const Variable read = reshape(tape, gather_rows(tape, table, placing.index), chosen);
    const Variable shares = softmax(tape, read, among.found);
    weight = concatenate(tape, std::vector{weight, shares}, 1);
    const std::string of_group = "groups." + std::to_string(group_);
    hooks.see(of_group + ".scores", r);
    hooks.see(of_group + ".index", Variable::constant(placing.index));
    hooks.see(of_group + ".weight", shares);
  }
  ChunkLists made{Tensor::empty(lists, DType::i32, device), Tensor::empty(lists, DType::i32, device), weight};
  const Tensor later = Tensor::empty(lists, DType::i32, device);
  ops::place_chunks(made.slot, made.own, later, placing);
  if (store != nullptr && f.write_state) store->write_lists(f, cut, group_, later, weight.value());
  if (f.telemetry != nullptr || f.retrieved != nullptr) report(f, cut, held, placing, weight.value());
  return made;
}

void ChunkRetriever::report(const Forward& f, const ChunkCut& cut, const HeldBlocks& held,
                            const ops::ChunkPlacing& placing, const Tensor& weight) const {
  const int64_t wanted = config_.top_k, lists = 1 + cut.most;
  const std::vector<int32_t> index = placing.index.to_vector<int32_t>(), ages = placing.age.to_vector<int32_t>();
  const std::vector<int32_t> list = cut.list.to_vector<int32_t>();
  const std::vector<double> weights = values_on_host(weight);
  std::map<int64_t, double> back;
  double all = 0, largest = 0, tokens = 0;
  for (int64_t cell = 0; cell < f.batch.rows * f.batch.length; ++cell) {
    const int32_t which = list[static_cast<size_t>(cell)];
    if (which < 0) continue;
    const int64_t row = cell / f.batch.length;
    const int64_t own = f.batch.position[static_cast<size_t>(cell)] / cut.positions;
    double most = 0;
    for (int64_t k = 0; k < wanted; ++k) {
      const double share = weights[static_cast<size_t>((row * lists + which) * wanted + k)];
      int64_t number = -1;
      if (which == 0) {
        const int32_t age = ages[static_cast<size_t>(row * wanted + k)];
        if (age > 0) number = held.written[static_cast<size_t>(row)] - age;
      } else {
        const int32_t candidate = index[static_cast<size_t>((row * cut.most + which - 1) * wanted + k)];
        if (candidate >= held.most) {
          number = cut.whole[static_cast<size_t>(row)][static_cast<size_t>(candidate - held.most)].number;
        } else if (candidate >= 0) {
          number = held.written[static_cast<size_t>(row)] - (held.most - candidate);
        }
      }
      if (number < 0) continue;
      if (f.retrieved != nullptr) {
        (*f.retrieved)[name_].push_back(
            {row, cell % f.batch.length, -1, number * cut.positions, (number + 1) * cut.positions, share});
      }
      back[static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(own - number)))] += share;
      most = std::max(most, share);
      all += share;
    }
    if (most > 0) ++tokens;
    largest += most;
  }
  if (f.telemetry == nullptr || all == 0) return;
  for (const auto& [distance, share] : back) {
    f.telemetry->emplace_back(name_ + ".back." + std::to_string(distance), share / all);
  }
  f.telemetry->emplace_back(name_ + ".largest", largest / tokens);
}

}  // namespace quire
