#include "layers/stacks/drt_retriever.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <map>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/rows.h"
#include "kernels/elementwise.h"
#include "layers/pass/host_values.h"

namespace quire {

namespace {

// Says which entries of the lists [R, L, K] name a chunk that the same list of no group below names.
std::vector<uint8_t> not_in(const ChunkLists& lists, const std::vector<ChunkLists>& below) {
  const auto chosen_count = static_cast<size_t>(lists.own.dim(2));
  const auto chunks_of = [](const ChunkLists& one) {
    return std::pair{one.own.to_vector<int32_t>(), one.slot.to_vector<int32_t>()};
  };
  const auto [own, slot] = chunks_of(lists);
  std::vector<uint8_t> fresh(own.size(), 1);
  for (const ChunkLists& other : below) {
    const auto [others_own, others_slot] = chunks_of(other);
    for (size_t i = 0; i < own.size(); ++i) {
      const size_t first = i / chosen_count * chosen_count;
      for (size_t j = first; j < first + chosen_count; ++j) {
        if (own[i] == others_own[j] && slot[i] == others_slot[j]) fresh[i] = 0;
      }
    }
  }
  return fresh;
}

}  // namespace

ChunkRetriever::ChunkRetriever(const Scope& scope, const ModelConfig& model, const DrtConfig& config, int64_t group)
    : name_(scope.path()),
      config_(config),
      group_(group),
      scale_(1 / std::sqrt(static_cast<double>(model.width))),
      choice_(scope.path(), config, group, scale_) {
  if (config.carry.in_training) {
    ages_ = scope.state_register("ages", {config.top_k}, {.dtype = DType::i32});
    weights_ = scope.state_register("weights", {config.top_k}, {.wide = true});
  }
  if (!uses_landmarks()) return;
  if (config.landmark_norm) norm_.emplace(scope.child("norm"), model);
  if (config.landmark_projection) {
    projection_.emplace(scope.child("query"), model.width, model.width, Initialization(model).matrix(model.width));
  }
}

Variable ChunkRetriever::scores(const Forward& f, const Variable& queries, const Variable& landmarks, const Tensor& own,
                                const Tensor& slot, const BlockLog* store) const {
  Tape& tape = f.tape;
  const int64_t rows = queries.dim(0), chunks = queries.dim(1), width = queries.dim(2);
  Variable of_chosen = gather_rows(tape, reshape(tape, landmarks, {rows * chunks, width}), own);
  if (slot.defined()) {
    const Variable table = Variable::constant(store->stored_summaries(f.state));
    of_chosen = add(tape, of_chosen, convert(tape, gather_rows(tape, table, slot), queries.value().dtype()));
  }
  const Variable products = multiply(tape, reshape(tape, queries, {rows, chunks, 1, width}), of_chosen);
  return scale(tape, reshape(tape, sum(tape, products, -1), own.shape()), scale_);
}

Variable ChunkRetriever::given_scores(const GivenScores& given) const {
  const Tensor& scores = given.scores;
  if (config_.weights == ChunkWeights::uniform) {
    return Variable::constant(Tensor::zeros(scores.shape(), scores.dtype(), scores.device()));
  }
  Tape idle(false);
  return scale(idle, Variable::constant(scores), 1 / config_.temperature);
}

ChunkLists ChunkRetriever::operator()(const Forward& f, const Variable& x, const ChunkCut& cut,
                                      const CarriedBlocks& carried, const Variable& landmarks, GivenScores& given,
                                      const BlockLog* store, const std::vector<ChunkLists>& below,
                                      const ChunkHooks& hooks) const {
  Tape& tape = f.tape;
  const int64_t rows = x.dim(0), chosen_count = config_.top_k;
  const Device device = x.value().device();
  const DType wide = wide_type(x.value().dtype());
  const Shape before{rows, chosen_count}, chosen{rows, cut.max_chunks, chosen_count},
      lists{rows, 1 + cut.max_chunks, chosen_count};
  ops::BlockPlacing placing = placing_of(store, f.state, carried);
  placing.index = Tensor::empty(chosen, DType::i32, device);
  placing.age = store == nullptr ? Tensor::zeros(before, DType::i32, device) : f.state.current(ages_);
  placing.count = cut.count;
  Variable queries, of_chunks;
  if (cut.max_chunks > 0) {
    if (uses_landmarks()) {
      queries = gather_rows(tape, x, cut.marks);
      if (norm_) queries = (*norm_)(tape, queries);
      if (projection_) queries = (*projection_)(tape, queries);
      queries = convert(tape, queries, wide);
      of_chunks = convert(tape, landmarks, wide);
    }
    placing.index = choice_(f, queries.value(), of_chunks.value(), given, cut, carried, store, hooks);
  }
  ChunkLists made{Tensor::empty(lists, DType::i32, device), Tensor::empty(lists, DType::i32, device), {}, {}};
  const Tensor later = Tensor::empty(lists, DType::i32, device);
  ops::place_blocks(made.slot, later, made.own, placing);
  if (carried.max_length > 0) made.stored = store->fetch(f.state, made.slot);
  made.weight = Variable::constant(store == nullptr ? Tensor::zeros(before, wide, device) : f.state.current(weights_));
  made.weight = reshape(tape, made.weight, {rows, 1, chosen_count});
  if (cut.max_chunks > 0) {
    const auto chosen_rows = [&](const Tensor& all) {
      const Tensor out = Tensor::empty(chosen, DType::i32, device);
      ops::copy(out, all.slice(1, 1, 1 + cut.max_chunks));
      return out;
    };
    Variable r = config_.weights == ChunkWeights::learned
                     ? scores(f, queries, of_chunks, chosen_rows(made.own),
                              carried.max_length > 0 ? chosen_rows(made.slot) : Tensor(), store)
                     : given_scores(given);
    if (config_.scores == ChunkScores::fixed) r = r.detached();
    const Variable shares = softmax(tape, r, choice_.found(f, given, cut, carried));
    made.weight = concatenate(tape, std::vector{made.weight, shares}, 1);
    const std::string of_group = "groups." + std::to_string(group_);
    hooks.see(of_group + ".index", Variable::constant(placing.index));
    hooks.see(of_group + ".weight", shares);
  }
  if (store != nullptr && f.write_state) write_lists(f, cut, later, made.weight.value());
  if (f.wants_telemetry() || f.wants_retrievals()) report(f, cut, carried, placing, made, below);
  return made;
}

void ChunkRetriever::write_lists(const Forward& f, const ChunkCut& cut, const Tensor& ages,
                                 const Tensor& weights) const {
  const auto put = [&](RegisterId id, const Tensor& lists) {
    const Tensor next = Tensor::zeros({f.batch.rows, config_.top_k}, lists.dtype(), lists.device());
    std::vector<uint8_t> written;
    for (int64_t row = 0; row < f.batch.rows; ++row) {
      const bool chose = cut.of_last[static_cast<size_t>(row)] > 0;
      // Lists in the order of the row's chunks stand behind the one that the pass began with.
      const auto last = static_cast<int64_t>(cut.whole[static_cast<size_t>(row)].size());
      if (chose) next.select(0, row).copy_from(lists.select(0, row).select(0, last));
      written.push_back(chose ? 1 : 0);
    }
    f.state.put(id, next, written);
  };
  put(ages_, ages);
  put(weights_, weights);
}

void ChunkRetriever::report(const Forward& f, const ChunkCut& cut, const CarriedBlocks& carried,
                            const ops::BlockPlacing& placing, const ChunkLists& made,
                            const std::vector<ChunkLists>& below) const {
  const int64_t chosen_count = config_.top_k, lists = 1 + cut.max_chunks;
  const std::vector<uint8_t> fresh = not_in(made, below);
  const std::vector<int32_t> index = placing.index.to_vector<int32_t>(), ages = placing.age.to_vector<int32_t>();
  const std::vector<int32_t> list = cut.list.to_vector<int32_t>();
  const std::vector<double> weights = values_on_host(made.weight.value());
  std::map<int64_t, double> back;
  double all = 0, largest = 0, tokens = 0, found = 0;
  for (int64_t cell = 0; cell < f.batch.rows * f.batch.length; ++cell) {
    const int32_t which = list[static_cast<size_t>(cell)];
    if (which < 0) continue;
    const int64_t row = cell / f.batch.length;
    const int64_t own = f.batch.position[static_cast<size_t>(cell)] / cut.positions;
    double max_share = 0;
    for (int64_t k = 0; k < chosen_count; ++k) {
      const auto entry = static_cast<size_t>((row * lists + which) * chosen_count + k);
      const double share = weights[entry];
      int64_t number = -1;
      if (which == 0) {
        const int32_t age = ages[static_cast<size_t>(row * chosen_count + k)];
        if (age > 0) number = carried.written[static_cast<size_t>(row)] - age;
      } else {
        const int32_t candidate = index[static_cast<size_t>((row * cut.max_chunks + which - 1) * chosen_count + k)];
        if (candidate >= carried.max_length) {
          number = cut.whole[static_cast<size_t>(row)][static_cast<size_t>(candidate - carried.max_length)].number;
        } else if (candidate >= 0) {
          number = carried.written[static_cast<size_t>(row)] - (carried.max_length - candidate);
        }
      }
      if (number < 0) continue;
      if (f.wants_retrievals()) {
        // The sub-layer that reads the chunks reads nothing else.
        f.add_retrieval(
            name_, {row, cell % f.batch.length, -1, number * cut.positions, (number + 1) * cut.positions, share, 0});
      }
      back[static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(own - number)))] += share;
      max_share = std::max(max_share, share);
      all += share;
      if (fresh[entry] != 0) found += share;
    }
    if (max_share > 0) ++tokens;
    largest += max_share;
  }
  if (!f.wants_telemetry() || all == 0) return;
  for (const auto& [distance, share] : back) {
    f.add_telemetry(name_ + ".back." + std::to_string(distance), share / all);
  }
  f.add_telemetry(name_ + ".largest", largest / tokens);
  if (!below.empty()) f.add_telemetry(name_ + ".new", found / all);
}

}  // namespace quire
