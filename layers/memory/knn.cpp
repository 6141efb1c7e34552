#include "layers/memory/knn.h"

#include <algorithm>
#include <cmath>

#include "autograd/functions/basic.h"
#include "autograd/functions/knn.h"
#include "core/check.h"
#include "kernels/elementwise.h"
#include "layers/host_values.h"

namespace quire {

namespace {

constexpr int64_t kProbes = 64;  // tokens whose stored keys are compared with those of now

std::optional<DType> stored_as(KnnStorage storage) {
  switch (storage) {
    case KnnStorage::f32:
      return DType::f32;
    case KnnStorage::bf16:
      return DType::bf16;
    case KnnStorage::int8:
      return DType::i8;
    case KnnStorage::fp8:
      return DType::f8;
    case KnnStorage::automatic:
      break;
  }
  return std::nullopt;
}

double sigmoid(double x) {
  return 1 / (1 + std::exp(-x));
}

double mean_of(const std::vector<double>& values) {
  double sum = 0;
  for (const double value : values) sum += value;
  return values.empty() ? 0 : sum / static_cast<double>(values.size());
}

// 1 for queries of the document that a row goes on with.
std::vector<uint8_t> readers(const Batch& batch) {
  std::vector<uint8_t> reads;
  for (const int32_t segment : batch.segment) reads.push_back(segment == 0 ? 1 : 0);
  return reads;
}

bool any_later_document(const Batch& batch) {
  return std::any_of(batch.segment.begin(), batch.segment.end(), [](int32_t segment) { return segment > 0; });
}

}  // namespace

KnnMemory::KnnMemory(const Scope& scope, const KnnConfig& config, const MixerShape& mixer)
    : name_(scope.path()), scope_(hash_scope(scope.path())), config_(config), mixer_(mixer) {
  if (config.is_gated()) {
    gate_ = scope.param_without_decay("gate", {mixer.heads}, Initializer::constant(config.gate));
  }
  if (config.combine == KnnCombine::content_gate) {
    content_.emplace(scope.child("content"), mixer.width, mixer.heads, Initializer::constant(0));
  }
  keys_ = declare(scope, "keys");
  values_ = declare(scope, "values");
  if (config.stale.refresh > 0) {
    inputs_ = scope.state_log("inputs", {mixer.width}, config.size, {.place = config.place, .waits = true});
  } else if (config.write != KnnWrite::never) {
    const int64_t probes = std::min(kProbes, config.size);
    probe_inputs_ = scope.state_log("probe.inputs", {mixer.width}, probes, {.waits = true});
    probe_keys_ = scope.state_log("probe.keys", {mixer.key_heads, mixer.head_size}, probes, {.waits = true});
  }
}

KnnMemory::Vectors KnnMemory::declare(const Scope& scope, const std::string& name) const {
  const std::optional<DType> dtype = stored_as(config_.dtype);
  Vectors vectors;
  vectors.log = scope.state_log(name, {mixer_.key_heads, mixer_.head_size}, config_.size,
                                {.dtype = dtype, .place = config_.place, .waits = true, .ages = name == "keys"});
  if (dtype && ops::has_scale(*dtype)) {
    vectors.scale = scope.state_log(name + ".scale", {mixer_.key_heads}, config_.size,
                                    {.dtype = DType::bf16, .place = config_.place, .waits = true});
  }
  return vectors;
}

void KnnMemory::store(const Vectors& vectors, const Tensor& values,
                      const std::function<void(LogId, const Tensor&)>& write) const {
  if (!vectors.scale.defined()) {
    write(vectors.log, values);
    return;
  }
  const Tensor small = Tensor::empty(values.shape(), *stored_as(config_.dtype), values.device());
  const Tensor scale = Tensor::empty({values.dim(0), values.dim(1), values.dim(2)}, DType::bf16, values.device());
  const int64_t count = scale.numel();
  ops::quantize_vectors(small.reshape({count, values.dim(3)}), scale.reshape({count}),
                        values.reshape({count, values.dim(3)}));
  write(vectors.log, small);
  write(vectors.scale, scale);
}

std::vector<int32_t> KnnMemory::readable(const StateView& state) const {
  std::vector<int32_t> readable;
  for (int64_t row = 0; row < state.rows(); ++row) {
    int64_t entries = state.lengths(keys_.log)[static_cast<size_t>(row)];
    // The oldest are those made longest ago.
    if (config_.stale.keep) entries = std::min(entries, state.entries_within(keys_.log, row, *config_.stale.keep));
    readable.push_back(static_cast<int32_t>(entries < config_.least ? 0 : entries));
  }
  return readable;
}

ops::KnnMemory KnnMemory::view(const StateView& state) const {
  ops::KnnMemory memory;
  memory.keys = state.stored_ring(keys_.log);
  memory.values = state.stored_ring(values_.log);
  if (keys_.scale.defined()) {
    memory.key_scale = state.stored_ring(keys_.scale);
    memory.value_scale = state.stored_ring(values_.scale);
  }
  memory.head = state.ring_head(keys_.log);
  memory.length = Tensor::from(readable(state), {state.rows()}, memory.keys.device());
  return memory;
}

KnnIndex* KnnMemory::index_of(const StateView& state, const ops::KnnMemory& memory, int64_t row, int64_t key_head) {
  Index& index = indices_[{state.first_row() + row, key_head}];
  if (!index.lists) {
    index.lists = std::make_unique<KnnIndex>(KnnIndexOptions{.size = mixer_.head_size,
                                                             .capacity = config_.size,
                                                             .lists = config_.inverted.lists,
                                                             .period = config_.inverted.period});
  }
  const int64_t document = state.document(keys_.log, row);
  if (index.document != document) index.lists->clear();
  index.document = document;
  const int64_t written = state.written(keys_.log, row);
  index.lists->update(written, read_entries(memory, row, key_head, written));
  return index.lists->is_ready() ? index.lists.get() : nullptr;
}

void KnnMemory::select_inverted(const StateView& state, const Tensor& index, const Tensor& q) {
  const ops::KnnMemory memory = view(state);
  const int64_t tokens = q.dim(1);
  const int64_t wanted = index.dim(3);
  const int64_t group = mixer_.heads / mixer_.key_heads;
  const std::vector<int32_t> length = readable(state);
  std::vector<float> queries(static_cast<size_t>(tokens * group * mixer_.head_size));
  std::vector<int32_t> found(static_cast<size_t>(tokens * group * wanted));
  std::vector<float> scores(found.size());
  for (int64_t row = 0; row < state.rows(); ++row) {
    if (length[static_cast<size_t>(row)] == 0) {
      const Tensor none = index.select(0, row);
      std::fill_n(none.data<int32_t>(), none.numel(), -1);
      continue;
    }
    for (int64_t key_head = 0; key_head < mixer_.key_heads; ++key_head) {
      const KnnIndex* const lists = index_of(state, memory, row, key_head);
      if (lists == nullptr) break;  // all heads learn at the same time: until then the search was exact
      // Queries of the heads that read this key head, [T * group, D].
      const auto place = [&](int64_t t, int64_t g) { return (row * tokens + t) * mixer_.heads + key_head * group + g; };
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t g = 0; g < group; ++g) {
          std::copy_n(q.data<float>() + place(t, g) * mixer_.head_size, mixer_.head_size,
                      queries.begin() + (t * group + g) * mixer_.head_size);
        }
      }
      lists->search(found.data(), scores.data(), queries.data(), tokens * group, wanted, config_.inverted.probes,
                    read_entries(memory, row, key_head, state.written(keys_.log, row)));
      for (int64_t t = 0; t < tokens; ++t) {
        for (int64_t g = 0; g < group; ++g) {
          std::copy_n(found.begin() + (t * group + g) * wanted, wanted, index.data<int32_t>() + place(t, g) * wanted);
        }
      }
    }
  }
}

double KnnMemory::recall_of(const StateView& state, const Tensor& q, const Tensor& index) const {
  const int64_t queries = std::min<int64_t>(64, q.dim(1));
  const Shape shape{1, queries, q.dim(2), q.dim(3)};
  const Tensor sample = q.select(0, 0).slice(0, 0, queries).reshape(shape);
  const Tensor exact = Tensor::empty({1, queries, index.dim(2), index.dim(3)}, DType::i32, q.device());
  const Tensor score = Tensor::empty(exact.shape(), wide_type(q.dtype()), q.device());
  ops::knn_search(exact, score, sample, view(state.block(0, 1)), ops::KnnSearch::exact);
  const std::vector<int32_t> wanted = exact.to_vector<int32_t>();
  const std::vector<int32_t> found = index.select(0, 0).slice(0, 0, queries).to_vector<int32_t>();
  return recall(found.data(), wanted.data(), queries * index.dim(2), index.dim(3));
}

Tensor KnnMemory::select(const Forward& f, const Tensor& q) {
  if (f.selections && f.again) {
    const Tensor index = f.selections->at(scope_);
    f.selections->erase(scope_);
    return index;
  }
  const Device device = q.device();
  const Shape shape{q.dim(0), q.dim(1), q.dim(2), std::min(config_.top_k, config_.size)};
  const Tensor index = Tensor::empty(shape, DType::i32, device);
  const Tensor score = Tensor::empty(shape, wide_type(q.dtype()), device);
  // Planning only counts.
  const bool inverted = config_.search == KnnSearchKind::inverted && device.kind != DeviceKind::meta;
  if (inverted && (q.dtype() != DType::f32 || !(device == kCpu))) {
    fail(ErrorKind::config, "{}: search: inverted works on the CPU in f32; use run.precision: f32 or search: exact",
         name_);
  }
  const ops::KnnSearch how =
      config_.search == KnnSearchKind::bucketed ? ops::KnnSearch::bucketed : ops::KnnSearch::exact;
  // A file is read row by row, so that no more of it than one row's memory is in main memory at once.
  const int64_t step = config_.place == LogPlace::file || inverted ? 1 : q.dim(0);
  // Rows whose groups are not learned yet are searched exactly.
  const auto learned = [&](int64_t row) {
    return inverted && f.state.written(keys_.log, row) >= config_.inverted.period;
  };
  for (int64_t row = 0; row < q.dim(0); row += step) {
    const StateView state = f.state.block(row, row + step);
    if (learned(row)) continue;
    ops::knn_search(index.slice(0, row, row + step), score.slice(0, row, row + step), q.slice(0, row, row + step),
                    view(state), how);
    state.forget_pages(keys_.log);
  }
  if (inverted) select_inverted(f.state, index, q);
  if (f.telemetry != nullptr && config_.search != KnnSearchKind::exact) {
    f.telemetry->emplace_back(name_ + ".recall", recall_of(f.state, q, index));
  }
  if (any_later_document(f.batch)) {
    ops::drop_entries(index, Tensor::from(readers(f.batch), {q.dim(0), q.dim(1)}, device));
  }
  if (f.selections) (*f.selections)[scope_] = index;
  return index;
}

Variable KnnMemory::combine(const Forward& f, const MixerTensors& mixer) {
  const Tensor index = select(f, mixer.q.value());
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
                              f.telemetry != nullptr ? &shares.joint : nullptr);
      break;
    case KnnCombine::add:
      mixed = add(f.tape, knn_attention(f.tape, mixer.scaled_q, index, memory), mixer.local);
      break;
    case KnnCombine::stop_forward:
      mixed = with_gradient_to(f.tape, knn_attention(f.tape, mixer.scaled_q.detached(), index, memory).value(),
                               mixer.local);
      break;
  }
  if (config_.place == LogPlace::file) f.state.forget_pages(values_.log);
  if (f.telemetry != nullptr) observe(f, mixer, index, shares);
  if (f.write_state && config_.write != KnnWrite::never) {
    write(f, mixer);
    if (config_.stale.refresh > 0 && f.training) refresh(f, mixer);
  }
  return mixed;
}

Variable KnnMemory::gated(const Forward& f, const MixerTensors& mixer, const Variable& found, Shares& shares) const {
  Tape& tape = f.tape;
  const Shape by_query{f.batch.rows * f.batch.length, 1, mixer_.heads, mixer_.head_size};
  Tensor open;
  if (config_.closed_when_empty) {
    std::vector<uint8_t> reads = readers(f.batch);
    const std::vector<int32_t> length = readable(f.state);
    for (size_t i = 0; i < reads.size(); ++i) {
      if (length[i / static_cast<size_t>(f.batch.length)] == 0) reads[i] = 0;
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

// Of `count` tokens of a document in a row of a tensor, the first of which is at `begin` and has `position`, those that
// enter memory: every stride-th of the document, whatever it is cut into.
void KnnMemory::Entering::add(int64_t begin, int64_t count, int64_t position) {
  const int64_t skipped = stride - 1 - ((position % stride) + stride) % stride;
  begins.push_back(begin + skipped);
  counts.push_back(count > skipped ? (count - skipped - 1) / stride + 1 : 0);
}

void KnnMemory::write(const Forward& f, const MixerTensors& mixer) const {
  const StateView& state = f.state;
  Entering entering{.stride = config_.stride};
  const auto append = [&](LogId log, const Tensor& values) {
    state.append(log, values, entering.begins, entering.counts, entering.stride);
  };
  const auto position_of = [&](int64_t row, int64_t t) {
    return f.batch.position[static_cast<size_t>(f.batch.at(row, t))];
  };
  if (config_.write == KnnWrite::produce) {
    for (int64_t row = 0; row < state.rows(); ++row) {
      const RowCarry& carry = state.carry(row);
      entering.add(carry.begin, carry.count, carry.count > 0 ? position_of(row, carry.begin) : 0);
    }
    store(keys_, mixer.k.value(), append);
    store(values_, mixer.v.value(), append);
    if (inputs_.defined()) append(inputs_, mixer.z.value());
  } else {
    // What the cache of W tokens will no longer hold: of its own entries and the segment's, all but the last W.
    const auto [keys, values] = mixer.carried();
    const int64_t most = mixer.carried_most;
    for (int64_t row = 0; row < state.rows(); ++row) {
      const RowCarry& carry = state.carry(row);
      const int64_t held = carry.replaces ? 0 : mixer.carried_length[static_cast<size_t>(row)];
      entering.add(carry.replaces ? most + carry.begin : most - held,
                   carry.count == 0 ? 0 : std::max<int64_t>(0, held + carry.count - most),
                   carry.count == 0 ? 0 : position_of(row, carry.begin) - held);
    }
    const auto joined = [&](const Tensor& older, const Tensor& newer) {
      const Tensor both =
          Tensor::empty({newer.dim(0), most + newer.dim(1), newer.dim(2), newer.dim(3)}, newer.dtype(), newer.device());
      ops::copy(both.slice(1, 0, most), older);
      ops::copy(both.slice(1, most, most + newer.dim(1)), newer);
      return both;
    };
    store(keys_, joined(keys, mixer.k.value()), append);
    store(values_, joined(values, mixer.v.value()), append);
  }
  if (probe_inputs_.defined() && f.training) {
    std::vector<int64_t> last, count;
    for (int64_t row = 0; row < state.rows(); ++row) {
      const RowCarry& carry = state.carry(row);
      last.push_back(std::max<int64_t>(0, carry.begin + carry.count - 1));
      count.push_back(carry.count > 0 ? 1 : 0);
    }
    state.append(probe_inputs_, mixer.z.value(), last, count);
    state.append(probe_keys_, mixer.k.value(), last, count);
  }
}

// The entries whose turn is longest ago are the oldest in order of their ages: a pointer that goes round memory. Where
// it stands follows from the ages: behind the entries made last.
void KnnMemory::refresh(const Forward& f, const MixerTensors& mixer) {
  const StateView& state = f.state;
  std::vector<int64_t> first, count;
  int64_t most = 0;
  for (int64_t row = 0; row < state.rows(); ++row) {
    const int64_t length = state.lengths(keys_.log)[static_cast<size_t>(row)];
    const auto wanted = static_cast<int64_t>(std::ceil(config_.stale.refresh * static_cast<double>(length)));
    // The run with the greatest age, and what follows it.
    int64_t at = 0;
    int64_t begin = 0;
    int64_t oldest = -1;
    for (const LogRun& run : state.ages(keys_.log, row)) {
      if (run.step > oldest) {
        oldest = run.step;
        begin = at;
      }
      at += run.count;
    }
    first.push_back(begin);
    count.push_back(std::min(wanted, length - begin));
    most = std::max(most, count.back());
  }
  if (most == 0) return;
  const Tensor inputs = state.gather(inputs_, most, first, count);
  const auto [keys, values] = mixer.project(inputs);
  const auto replace = [&](LogId log, const Tensor& made) { state.replace(log, made, first, count); };
  store(keys_, keys, replace);
  store(values_, values, replace);
}

// Of each head, over the tokens of the rows where it depends on them.
void KnnMemory::observe_gate(const Forward& f, const Tensor& content) const {
  const std::vector<double> biases = values_on_host(gate_.value());
  const std::vector<double> of_tokens = content.defined() ? values_on_host(content) : std::vector<double>();
  double share = 0;
  for (size_t h = 0; h < biases.size(); ++h) {
    std::vector<double> gates;
    for (size_t n = 0; n < of_tokens.size() / biases.size(); ++n) {
      if (f.batch.segment[n] >= 0) gates.push_back(sigmoid(biases[h] + of_tokens[n * biases.size() + h]));
    }
    const double gate = content.defined() ? mean_of(gates) : sigmoid(biases[h]);
    f.telemetry->emplace_back(name_ + ".gate." + std::to_string(h), gate);
    share += gate / static_cast<double>(biases.size());
  }
  f.telemetry->emplace_back(name_ + ".share", share);
}

void KnnMemory::observe(const Forward& f, const MixerTensors& mixer, const Tensor& index, const Shares& shares) const {
  Telemetry& telemetry = *f.telemetry;
  if (gate_.defined()) observe_gate(f, shares.content);
  if (shares.joint.defined()) telemetry.emplace_back(name_ + ".share", mean_of(values_on_host(shares.joint)));
  double entries = 0;
  for (const int64_t length : f.state.lengths(keys_.log)) {
    entries += static_cast<double>(length) / static_cast<double>(f.state.rows());
  }
  telemetry.emplace_back(name_ + ".entries", entries);
  telemetry.emplace_back(name_ + ".age", mean_age(f.state, index));
  if (const std::optional<double> similar = cosine(f, mixer)) telemetry.emplace_back(name_ + ".cosine", *similar);
}

double KnnMemory::mean_age(const StateView& state, const Tensor& index) const {
  const std::vector<int32_t> found = index.to_vector<int32_t>();
  const std::vector<int32_t> entries = readable(state);
  const size_t per_row = found.size() / static_cast<size_t>(state.rows());
  double sum = 0;
  double count = 0;
  for (int64_t row = 0; row < state.rows(); ++row) {
    std::vector<double> ages;
    for (const LogRun& run : state.ages(keys_.log, row)) {
      ages.insert(ages.end(), static_cast<size_t>(run.count), static_cast<double>(run.step));
    }
    // Entries count from the oldest one that may be retrieved.
    const auto hidden = static_cast<int64_t>(ages.size()) - entries[static_cast<size_t>(row)];
    for (size_t i = 0; i < per_row; ++i) {
      const int32_t entry = found[static_cast<size_t>(row) * per_row + i];
      if (entry < 0) continue;
      sum += ages[static_cast<size_t>(hidden + entry)];
      ++count;
    }
  }
  return count > 0 ? sum / count : 0;
}

std::optional<double> KnnMemory::cosine(const Forward& f, const MixerTensors& mixer) const {
  if (!inputs_.defined() && !probe_inputs_.defined()) return std::nullopt;
  const StateView& state = f.state;
  const LogId from = inputs_.defined() ? inputs_ : probe_inputs_;
  double sum = 0;
  double count = 0;
  for (int64_t row = 0; row < state.rows(); ++row) {
    const StateView one = state.block(row, row + 1);
    int64_t length = one.lengths(from)[0];
    const std::vector<LogRun> ages = one.ages(keys_.log, 0);
    if (length == 0 || ages.empty()) continue;
    // The oldest ones, which are the most stale; of probes, one a step, those of steps that memory still holds.
    const int64_t gone = inputs_.defined() ? 0 : std::max<int64_t>(0, length - ages.front().step);
    length -= gone;
    const std::vector<int64_t> first{gone};
    const std::vector<int64_t> taken{std::min(length, kProbes)};
    const Tensor stored = inputs_.defined() ? one.gather(keys_.log, taken[0], first, taken)
                                            : one.gather(probe_keys_, taken[0], first, taken);
    Tensor wide = stored;
    if (ops::has_scale(stored.dtype())) {
      const Tensor scale = one.gather(keys_.scale, taken[0], first, taken);
      wide = Tensor::empty(stored.shape(), mixer.k.value().dtype(), stored.device());
      ops::dequantize_vectors(wide.reshape({scale.numel(), mixer_.head_size}),
                              stored.reshape({scale.numel(), mixer_.head_size}), scale.reshape({scale.numel()}));
    }
    const std::vector<double> before = values_on_host(wide);
    const std::vector<double> now = values_on_host(mixer.project(one.gather(from, taken[0], first, taken)).first);
    const auto size = static_cast<size_t>(mixer_.head_size);
    for (size_t i = 0; i < now.size(); i += size) {
      double product = 0;
      double a = 0;
      double b = 0;
      for (size_t d = 0; d < size; ++d) {
        product += now[i + d] * before[i + d];
        a += now[i + d] * now[i + d];
        b += before[i + d] * before[i + d];
      }
      if (a == 0 || b == 0) continue;
      sum += product / std::sqrt(a * b);
      ++count;
    }
  }
  return count > 0 ? std::optional(sum / count) : std::nullopt;
}

}  // namespace quire
