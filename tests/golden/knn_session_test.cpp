// Golden knn_memory, kinds fifo and session: a memory on a log of a StatePool over consecutive segments whose rows
// begin documents at different times, alone and inside the softmax mixer.
#include <gtest/gtest.h>

#include <cmath>

#include "autograd/functions/basic.h"
#include "autograd/functions/norm.h"
#include "kernels/knn.h"
#include "layers/memory/knn_config.h"
#include "layers/mixers/softmax_attention.h"
#include "layers/state/state_pool.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/compare.h"
#include "tests/support/hand_batch.h"
#include "tests/support/softmax_options.h"
#include "tests/support/state_logs.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

Tensor like_golden(const std::vector<double>& values, const Shape& shape, DType dtype) {
  return converted(Tensor::from(values, shape), dtype).to(test_device());
}

// The readable entries of a log [R, M, H, D], oldest first, zeros behind.
Tensor oldest_first(const StateView& state, LogId log, int64_t entries, DType dtype) {
  std::vector<double> all;
  Shape shape;
  for (int64_t row = 0; row < state.rows(); ++row) {
    const StateView one = state.block(row, row + 1);
    const std::vector<int64_t> first{0};
    const std::vector<int64_t> count = one.lengths(log.group);
    const Tensor stored = one.gather(log, entries, first, count);
    shape = stored.shape();
    const std::vector<double> values = values_of(stored);
    const size_t entry = values.size() / static_cast<size_t>(entries);
    const auto used = static_cast<size_t>(count[0]) * entry;
    all.insert(all.end(), values.end() - static_cast<std::ptrdiff_t>(used), values.end());
    all.insert(all.end(), values.size() - used, 0.0);
  }
  shape[0] = state.rows();
  return like_golden(all, shape, dtype);
}

Tensor lengths_of(const StateView& state, LogId log) {
  const std::vector<int64_t> lengths = state.lengths(log.group);
  return Tensor::from(std::vector<int32_t>(lengths.begin(), lengths.end()), {state.rows()});
}

std::vector<uint8_t> starts_of(const GoldenCase& golden, int64_t segment) {
  const std::vector<int32_t> starts = golden.get("in/start_of_doc").select(0, segment).to_vector<int32_t>();
  return {starts.begin(), starts.end()};
}

// Segment s of [n_seg, ...] results.
class BySegment {
 public:
  void add(const Tensor& x) {
    Shape one = x.shape();
    std::vector<int64_t> sizes(one.begin(), one.end());
    sizes.insert(sizes.begin(), 1);
    const Tensor segment = x.reshape(Shape(sizes));
    all_ = all_.defined() ? joined(all_, segment, 0) : segment;
  }
  const Tensor& all() const { return all_; }

 private:
  Tensor all_;
};

TEST(GoldenKnnMemory, FirstInFirstOut) {
  GoldenFile(golden_folder(), "knn_memory").for_each_case("fifo", [](GoldenCase& golden) {
    const int64_t rows = golden.number("batch");
    const int64_t tokens = golden.number("seg_len");
    const int64_t size = golden.number("mem_size");
    const Shape entry{golden.number("heads"), golden.number("d_head")};
    StateLayout layout;
    const LogGroupId memory = layout.add_log_group("memory", size, {.waits = true, .ages = true});
    const LogId keys = layout.add_log(memory, "keys", entry);
    const LogId values = layout.add_log(memory, "values", entry);
    StatePool pool(layout, rows, tokens, golden.dtype(), test_device());
    const Tensor k = golden.get("in/k");
    const Tensor v = golden.get("in/v");
    BySegment all_k, all_v, all_length, all_position;
    for (int64_t segment = 0; segment < golden.number("n_seg"); ++segment) {
      const Batch batch = one_segment(rows, tokens, starts_of(golden, segment));
      pool.begin_step(batch);
      const StateView state = pool.view(0, rows);
      state.append(keys, k.select(0, segment));
      state.append(values, v.select(0, segment));
      pool.commit();
      all_k.add(oldest_first(state, keys, size, golden.dtype()));
      all_v.add(oldest_first(state, values, size, golden.dtype()));
      all_length.add(lengths_of(state, keys));
      // Where an entry was made, from its age: all entries of a segment are carried.
      std::vector<int32_t> position;
      for (int64_t row = 0; row < rows; ++row) {
        const size_t begin = position.size();
        for (const LogRun& run : state.ages(memory, row)) {
          const auto made = static_cast<int32_t>(segment + 1 - run.step);
          // If a segment is not stored whole, its last entries are.
          for (int64_t i = tokens - run.count; i < tokens; ++i) {
            position.push_back(made * static_cast<int32_t>(tokens) + static_cast<int32_t>(i));
          }
        }
        position.resize(begin + static_cast<size_t>(size), -1);
      }
      all_position.add(Tensor::from(position, {rows, size}));
    }
    golden.expect("out/mem_k", all_k.all());
    golden.expect("out/mem_v", all_v.all());
    golden.expect("out/mem_len", all_length.all());
    golden.expect("out/mem_pos", all_position.all());
  });
}

// The mixer is given queries, keys and values by projections that take a third of its input each.
class Session {
 public:
  explicit Session(GoldenCase& golden)
      : golden_(golden),
        rows_(golden.number("batch")),
        tokens_(golden.number("seg_len")),
        heads_(golden.number("heads")),
        size_(golden.number("d_head")),
        inner_(heads_ * size_) {}

  void run() {
    EXPECT_EQ(golden_.text("combine"), "gate");
    if (golden_.flag("qk_norm")) {
      golden_.expect_only("scale", 1);
    } else {
      golden_.expect_only("scale", 1 / std::sqrt(static_cast<double>(size_)));
      golden_.unused({"qk_norm_eps"});
    }
    BySegment found, before, mixed, from_memory, dq, dk, dv;
    const Reading whole = read({}, &found, &before);
    // An open gate lets nothing but memory through.
    const Reading memory = read(std::vector<double>(static_cast<size_t>(heads_), 100), nullptr, nullptr);
    for (size_t segment = 0; segment < whole.y.size(); ++segment) {
      mixed.add(features(whole.y[segment], 0));
      from_memory.add(features(memory.y[segment], 0));
      dq.add(features(whole.dx[segment], 0));
      dk.add(features(whole.dx[segment], 1));
      dv.add(features(whole.dx[segment], 2));
    }
    golden_.expect("out/v_a", mixed.all());
    golden_.expect("out/v_m", from_memory.all());
    golden_.expect("out/topk_idx", found.all());
    golden_.expect("out/mem_len_before", before.all());
    golden_.expect("grad/q", dq.all());
    golden_.expect("grad/k", dk.all());
    golden_.expect("grad/v", dv.all());
  }

 private:
  struct Reading {
    std::vector<Tensor> y, dx;  // [B, T, E]
  };

  // The third `part` of [B, T, 3 H D] as [B, T, H, D].
  Tensor features(const Tensor& x, int64_t third) const {
    return part(x, 2, third * inner_, (third + 1) * inner_).reshape({rows_, tokens_, heads_, size_});
  }

  ModelConfig model() const {
    ModelConfig model;
    model.width = 3 * inner_;
    model.layers = 1;
    model.heads = heads_;
    model.head_size = size_;
    model.position.kind = golden_.flag("use_bias") ? Position::t5 : Position::none;
    softmax_options(model).window = golden_.number("window");
    softmax_options(model).attend_self = golden_.flag("attend_self");
    softmax_options(model).qk_norm = golden_.flag("qk_norm");
    softmax_options(model).carry.mask_empty = golden_.flag("mask_empty_cache");
    model.position.t5 = {golden_.number("num_buckets"), golden_.number("max_distance")};
    softmax_options(model).carry.kind = CarryKind::kv;
    KindConfig memory(Role::memory, "knn");
    memory.options.get<KnnConfig>().carry.length = golden_.number("mem_size");
    memory.options.get<KnnConfig>().top_k = golden_.number("top_k");
    model.memory = {{.layers = {0}, .mechanism = memory}};
    return model;
  }

  // W [3 H D, H D] or its transpose with ones where feature i meets feature i of a third.
  Tensor picking(int64_t third, bool out) const {
    std::vector<double> values(static_cast<size_t>(3 * inner_ * inner_), 0);
    for (int64_t i = 0; i < inner_; ++i) {
      values[static_cast<size_t>(out ? i * inner_ + i : i * 3 * inner_ + third * inner_ + i)] = 1;
    }
    return like_golden(values, out ? Shape{3 * inner_, inner_} : Shape{inner_, 3 * inner_}, golden_.dtype());
  }

  Tensor parameter(const std::string& name) const {
    if (name == "query.weight") return picking(0, false);
    if (name == "key.weight") return picking(1, false);
    if (name == "value.weight") return picking(2, false);
    if (name == "out.weight") return picking(0, true);
    if (name == "bias") return golden_.get("in/bias_table");
    if (name == "scale") return golden_.get("in/attn_scale");
    return golden_.get("in/gate_bias");
  }

  // All segments. gate: other biases than the case's; found and before are filled when given, and gradients compared.
  Reading read(const std::vector<double>& gate, BySegment* found, BySegment* before) {
    const ModelConfig config = model();
    ParameterStore store;
    Declarations declared;
    StateLayout& layout = declared.state;
    const LayerConfig layer = config.layer_configs()[0];
    SoftmaxAttention mixer(Scope(store, declared, golden_.dtype()), {config, layer, layer.attention.mechanism.options},
                           {.memories = config.memory});
    store.allocate(golden_.dtype(), test_device(), 1);
    for (const ParameterStore::Entry& entry : store.entries()) {
      const bool other = entry.name == "memory.0.gate" && !gate.empty();
      entry.variable.value().copy_from(other ? like_golden(gate, {heads_}, golden_.dtype()) : parameter(entry.name));
    }
    const LogId keys = log_named(layout, "memory.0.keys");
    const LogId values = log_named(layout, "memory.0.values");
    StatePool pool(layout, rows_, tokens_, golden_.dtype(), test_device());
    const StateView state = pool.view(0, rows_);
    Reading reading;
    for (int64_t segment = 0; segment < golden_.number("n_seg"); ++segment) {
      const auto flat = [&](const std::string& name) {
        return golden_.get(name).select(0, segment).reshape({rows_, tokens_, inner_});
      };
      const Batch batch = one_segment(rows_, tokens_, starts_of(golden_, segment));
      pool.begin_step(batch);
      const Variable x = Variable::leaf(joined(joined(flat("in/q"), flat("in/k"), 2), flat("in/v"), 2));
      if (found != nullptr) {
        before->add(lengths_of(state, keys));
        found->add(search(state, keys, golden_.get("in/q").select(0, segment)));
      }
      Tape tape;
      const Variable y = mixer({.tape = tape, .batch = batch, .state = state}, {x, nullptr});
      const Tensor zeros = Tensor::zeros({rows_, tokens_, 2 * inner_}, golden_.dtype(), test_device());
      tape.backward({{weighted_sum(tape, y, joined(flat("grad_out/v_a"), zeros, 2)), 1.0}});
      pool.commit();
      reading.y.push_back(y.value());
      reading.dx.push_back(x.gradient()->value());
    }
    if (found == nullptr) return reading;
    const int64_t size = golden_.number("mem_size");
    golden_.expect("out/mem_len", lengths_of(state, keys));
    golden_.expect("out/mem_k", oldest_first(state, keys, size, golden_.dtype()));
    golden_.expect("out/mem_v", oldest_first(state, values, size, golden_.dtype()));
    for (const ParameterStore::Entry& entry : store.entries()) {
      const Tensor gradient = ParameterStore::slice(store.gradients(), entry);
      if (entry.name == "bias") golden_.expect("grad/bias_table", gradient);
      if (entry.name == "scale") golden_.expect("grad/attn_scale", gradient);
      if (entry.name == "memory.0.gate") golden_.expect("grad/gate_bias", gradient);
    }
    return reading;
  }

  Tensor search(const StateView& state, LogId keys, const Tensor& queries) const {
    Tape tape(false);
    const Variable given = Variable::constant(queries);
    const Variable q = golden_.flag("qk_norm") ? l2_normalize(tape, given, golden_.real("qk_norm_eps")) : given;
    const Shape shape{rows_, tokens_, heads_, golden_.number("top_k")};
    const Tensor index = Tensor::empty(shape, DType::i32, test_device());
    const Tensor score = Tensor::empty(shape, golden_.dtype(), test_device());
    ops::KnnMemory memory;
    memory.keys = state.stored_ring(keys);
    memory.values = memory.keys;
    memory.head = state.ring_head(keys.group);
    memory.length = lengths_of(state, keys).to(test_device());
    ops::knn_search(index, score, q.value(), memory, ops::KnnSearch::exact);
    return index;
  }

  GoldenCase& golden_;
  int64_t rows_, tokens_, heads_, size_, inner_;
};

TEST(GoldenKnnMemory, Session) {
  GoldenFile(golden_folder(), "knn_memory").for_each_case("session", [](GoldenCase& golden) { Session(golden).run(); });
}

}  // namespace
}  // namespace quire::test
