// Golden hils: attention from given queries and keys, and whole layers.
#include <gtest/gtest.h>

#include "layers/mixers/hils_heads.h"
#include "layers/position/position_tables.h"
#include "layers/position/rope_frequencies.h"
#include "tests/golden/golden_file.h"
#include "tests/support/compare.h"
#include "tests/support/test_device.h"

namespace quire::test {
namespace {

class HilsGolden {
 public:
  explicit HilsGolden(GoldenCase& golden)
      : golden_(golden),
        leaves_(golden.leaves()),
        slots_(golden.get("in/pos").to_vector<int32_t>()),
        rows_(golden.number("batch")),
        length_(golden.number("seq_len")),
        shape_{golden.number("n_head"), golden.number("n_kv_head"), golden.number("head_dim"), golden.number("d_v")},
        config_(options()),
        chunks_(config_, rows_, length_, spans()),
        tables_(chunks_.tables(test_device(), shape_.key_heads, [](const auto&, const auto& make) { return make(); })) {
    in_.scale = golden.real("scale");
    golden.unused({"select_margin", "tail_of", "tail_start"});
    if (golden.flag("state_in")) read_memory();
  }

  void run_attention() {
    in_.q = leaves_.at("q"), in_.score_q = leaves_.at("lq"), in_.k = leaves_.at("k"), in_.v = leaves_.at("v");
    if (config_.summary == HilsSummary::exact) in_.score_q = in_.q;
    Tape tape;
    const HilsMix mix = hils_mix(tape, config_, shape_, tables_, in_);
    expect_mix(mix);
    tape.backward({{weighted_sum(tape, mix.out, golden_.get("grad_out/o")), 1.0}});
    golden_.expect_gradients(leaves_);
  }

  void run_layer() {
    read_layer_options();
    by_document();
    Tape tape;
    HilsRotation rotation;
    if (golden_.text("rope") == "half") {
      RopeConfig rope;
      rope.base = golden_.real("rope_base");
      const std::vector<double> frequencies =
          hils_frequencies(rope_frequencies(rope, shape_.size), config_.rope_length, config_.rope_turns);
      rotation.table = PositionTables().rotary(0, 64, frequencies, golden_.dtype(), test_device());
    }
    golden_.unused({"rope_base"});
    const HilsHeads heads = hils_heads(tape, config_, shape_, weights(), leaves_.at("x"), tables_, rotation);
    golden_.expect("out/k_rot", heads.k.value());
    golden_.expect("out/v", heads.v.value());
    in_.q = heads.q, in_.score_q = heads.score_q, in_.k = heads.k, in_.v = heads.v, in_.shared = heads.shared;
    const HilsMix mix = hils_mix(tape, config_, shape_, tables_, in_);
    expect_mix(mix);
    const Variable mixed = reshape(tape, mix.out, {rows_, length_, shape_.heads * shape_.value_size});
    const Variable y = linear(tape, mixed, leaves_.at("w_o"));
    golden_.expect("out/y", y.value());
    tape.backward({{weighted_sum(tape, y, golden_.get("grad_out/y")), 1.0}});
    golden_.expect_gradients(leaves_);
  }

 private:
  HilsConfig options() const {
    HilsConfig config;
    config.chunk = golden_.number("chunk");
    config.window = golden_.number("window");
    config.top_k = golden_.number("topk");
    config.softmax_one = golden_.flag("softmax1");
    const std::string summary = golden_.text("summary");
    config.summary = summary == "prior"      ? HilsSummary::prior
                     : summary == "mean"     ? HilsSummary::mean
                     : summary == "landmark" ? HilsSummary::landmark
                                             : HilsSummary::exact;
    return config;
  }

  void read_layer_options() {
    const std::string score = golden_.text("lq");
    config_.score_query = score == "low_rank" ? HilsScoreQuery::low_rank
                          : score == "full"   ? HilsScoreQuery::full
                                              : HilsScoreQuery::none;
    if (golden_.text("landmark_query") == "shared") config_.landmark_query = HilsLandmarkQuery::shared;
    if (golden_.text("norm") == "layer") config_.norm = HilsNorm::all;
    config_.norm_eps = golden_.real("norm_eps");
    if (const int64_t length = golden_.number("rope_len"); length > 0) config_.rope_length = length;
    config_.rope_turns = golden_.real("rope_mult");
    golden_.unused({"d_model", "rank"});
  }

  std::vector<HilsSpan> spans() const {
    std::vector<int32_t> begin(static_cast<size_t>(rows_), 0), count = begin;
    if (golden_.has("in/mem_len")) {
      begin = golden_.get("in/mem_start").to_vector<int32_t>();
      count = golden_.get("in/mem_len").to_vector<int32_t>();
    }
    std::vector<HilsSpan> all;
    for (int64_t cell = 0; cell < rows_ * length_; ++cell) {
      const int32_t slot = slots_[static_cast<size_t>(cell)];
      const auto row = static_cast<size_t>(cell / length_);
      if (slot == 0 || cell % length_ == 0) {
        HilsSpan span{cell / length_, cell % length_, 0, slot};
        if (slot > 0) {
          EXPECT_EQ(begin[row] + count[row], slot);
          span.stored = count[row] / config_.chunk, span.tail = count[row] % config_.chunk;
        }
        all.push_back(span);
      }
      ++all.back().count;
    }
    return all;
  }

  const HilsSpan& span_of(int64_t row, int64_t t) const {
    const HilsSpan* found = nullptr;
    for (const HilsSpan& span : chunks_.spans()) found = span.row == row && span.begin <= t ? &span : found;
    return *found;
  }

  // Copies slots of the memory: source(row, n) is the slot of place n, counted from the memory's first, or -1.
  Tensor slots_of_memory(const char* dataset, int64_t places,
                         const std::function<int64_t(int64_t row, int64_t n)>& source) const {
    const Tensor memory = golden_.get(dataset);
    const std::vector<double> from = values_of(memory);
    const int64_t line = memory.numel() / (memory.dim(0) * memory.dim(1));
    std::vector<double> to(static_cast<size_t>(rows_ * places * line), 0);
    for (int64_t i = 0; i < rows_ * places; ++i) {
      const int64_t slot = source(i / places, i % places);
      if (slot < 0) continue;
      std::copy_n(from.begin() + (i / places * memory.dim(1) + slot) * line, line, to.begin() + i * line);
    }
    return converted(Tensor::from(to, {rows_, places, line}), golden_.dtype()).to(test_device());
  }

  void read_memory() {
    const int64_t chunk = config_.chunk, stored = tables_.stored, before = tables_.before,
                  tail_at = tables_.near * chunk;
    // The place of a stored chunk as a chunk of the memory.
    const auto number = [this, stored](int64_t row, int64_t place) {
      return place < 0 ? -1 : place - (stored - span_of(row, 0).stored);
    };
    const auto near = [=, this](int64_t row, int64_t n) -> int64_t {
      const HilsSpan& span = span_of(row, 0);
      if (n >= tail_at) return n < before - span.tail ? -1 : span.stored * chunk + span.tail - (before - n);
      const int64_t place = number(row, chunks_.near_chunks()[static_cast<size_t>(row * tables_.near + n / chunk)]);
      return place < 0 ? -1 : place * chunk + n % chunk;
    };
    const Shape keys{rows_, before, shape_.key_heads, shape_.size},
        values{rows_, before, shape_.key_heads, shape_.value_size};
    in_.before_keys = slots_of_memory("in/mem_k", before, near).reshape(keys);
    in_.before_values = slots_of_memory("in/mem_v", before, near).reshape(values);
    in_.summaries = slots_of_memory("in/mem_ck", stored, number).reshape({rows_, stored, shape_.heads, shape_.size});
    in_.biases = slots_of_memory("in/mem_cb", stored, number).reshape({rows_, stored, shape_.heads});
    in_.fetch = [=, this](const std::vector<int32_t>& places) {
      const int64_t n = static_cast<int64_t>(places.size()) / rows_;
      const auto slot = [&](int64_t row, int64_t i) -> int64_t {
        const int64_t place = number(row, places[static_cast<size_t>(row * n + i / chunk)]);
        return place < 0 ? -1 : place * chunk + i % chunk;
      };
      return std::pair{
          slots_of_memory("in/mem_k", n * chunk, slot).reshape({rows_, n, chunk, shape_.key_heads, shape_.size}),
          slots_of_memory("in/mem_v", n * chunk, slot).reshape({rows_, n, chunk, shape_.key_heads, shape_.value_size})};
    };
  }

  // Positions count from the beginning of each document, as those of the keys in the memory do.
  void by_document() {
    std::vector<int32_t> positions, marks = tables_.landmarks.to_vector<int32_t>();
    for (const int32_t slot : slots_) positions.push_back(slot - slot / static_cast<int32_t>(config_.chunk));
    for (size_t i = 0; i < marks.size(); ++i) {
      const size_t row = i / static_cast<size_t>(tables_.own);
      if (marks[i] >= 0) marks[i] = positions[row * static_cast<size_t>(length_) + static_cast<size_t>(marks[i])];
      marks[i] = std::max(marks[i], 0);
    }
    tables_.position = Tensor::from(positions, {rows_, length_}, test_device());
    tables_.mark_position = Tensor::from(marks, {rows_, tables_.own}, test_device());
  }

  HilsWeights weights() const {
    const auto leaf = [&](const char* name) { return leaves_.contains(name) ? leaves_.at(name) : Variable(); };
    HilsWeights w;
    w.query = leaf("w_q"), w.key = leaf("w_k"), w.value = leaf("w_v");
    w.query_gain = leaf("g_q"), w.key_gain = leaf("g_k"), w.score_gain = leaf("g_l");
    w.score_down = leaf("w_ld"), w.score_up = leaf("w_lu"), w.score = leaf("w_l"), w.landmark_query = leaf("q_c");
    return w;
  }

  // [R, H, T, n] -> [R, T, H, n]
  Tensor by_token(const Variable& x, int64_t begin, int64_t end) const {
    Tape idle(false);
    return permute(idle, slice(idle, Variable::constant(x.value()), 3, begin, end), {0, 2, 1, 3}).value();
  }
  void expect_mix(const HilsMix& mix) {
    golden_.expect("out/o", mix.out.value());
    golden_.expect("out/o_loc", mix.window.value());
    const int64_t k = tables_.chosen;
    Tape idle(false);
    golden_.expect("out/lse_loc", permute(idle, Variable::constant(mix.window_sum.value()), {0, 2, 1}).value());
    golden_.expect("out/score", by_token(mix.scores, 0, k));
    golden_.expect("out/weight", by_token(mix.weights, 0, k + 1));
    expect_chosen(mix);
    std::vector<int32_t> marks = tables_.landmarks.to_vector<int32_t>();
    golden_.expect("out/chunk_at", Tensor::from(marks, {rows_, tables_.own}));
    if (config_.summary == HilsSummary::exact) return;
    golden_.expect("out/ck", mix.summaries.keys.value());
    std::vector<double> biases = values_of(mix.summaries.biases.value());
    for (size_t i = 0; i < biases.size(); ++i) {  // places without a chunk have some bias, too
      if (marks[i / static_cast<size_t>(shape_.heads)] < 0) biases[i] = 0;
    }
    golden_.expect("out/cb", converted(Tensor::from(biases, {rows_, tables_.own, shape_.heads}), golden_.dtype()));
  }

  void expect_chosen(const HilsMix& mix) {
    const std::vector<int32_t> places = mix.chosen.to_vector<int32_t>();
    std::vector<int32_t> numbers(static_cast<size_t>(rows_ * length_ * shape_.key_heads * config_.top_k), -1);
    for (size_t i = 0; i < places.size(); ++i) {
      if (places[i] < 0) continue;
      const auto n = static_cast<int64_t>(i);
      const int64_t k = n % tables_.chosen, t = n / tables_.chosen % length_, line = n / tables_.chosen / length_;
      const int64_t row = line / shape_.key_heads, head = line % shape_.key_heads;
      const HilsSpan& span = span_of(row, t);
      int64_t number = span.slot / config_.chunk - (tables_.stored - places[i]);
      if (places[i] >= tables_.stored) {
        number = places[i] - tables_.stored + chunks_.first_own(span);
        for (const HilsSpan& other : chunks_.spans()) {
          if (other.row == row && other.begin < span.begin) number -= chunks_.count_own(other);
        }
      }
      numbers[static_cast<size_t>(((row * length_ + t) * shape_.key_heads + head) * config_.top_k + k)] =
          static_cast<int32_t>(number);
    }
    golden_.expect("out/sel", Tensor::from(numbers, {rows_, length_, shape_.key_heads, config_.top_k}));
  }

  GoldenCase& golden_;
  std::map<std::string, Variable> leaves_;
  std::vector<int32_t> slots_;
  int64_t rows_, length_;
  HilsShape shape_;
  HilsConfig config_;
  HilsChunks chunks_;
  HilsTables tables_;
  HilsInput in_;
};

TEST(GoldenHils, Attention) {
  GoldenFile(golden_folder(), "hils").for_each_case("attn", [](GoldenCase& golden) {
    HilsGolden(golden).run_attention();
  });
}

TEST(GoldenHils, Layer) {
  GoldenFile(golden_folder(), "hils").for_each_case("layer", [](GoldenCase& golden) {
    HilsGolden(golden).run_layer();
  });
}

}  // namespace
}  // namespace quire::test
