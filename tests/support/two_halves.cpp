// A stack of two halves. A token is inserted behind every `chunk` tokens of the text, and with it they are a chunk; the
// mean of what the lower half of the blocks makes of a chunk stands for it. Each block of the upper half has one more
// sub-layer: it reads the two whole chunks before its position that score best, among the last `length` of the
// document.
#include <algorithm>
#include <cmath>

#include "autograd/functions/axis.h"
#include "autograd/functions/basic.h"
#include "autograd/functions/rows.h"
#include "layers/model/block.h"
#include "layers/model/stack.h"
#include "layers/parameters/scope.h"
#include "layers/pass/host_values.h"
#include "layers/state/log_place.h"
#include "tests/support/chunk_means.h"
#include "tests/support/test_mechanisms.h"

namespace quire::test {

namespace {

struct TwoHalvesConfig {
  int64_t chunk = 64, length = 1024;
  LogPlace place = LogPlace::file;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("chunk", chunk, {.help = "tokens of the text in a chunk", .unit = "tokens", .min = 1});
    v.field("length", length,
            {.help = "chunks that a row remembers", .min = 1, .at_evaluation = true, .sizes_state = true});
    v.field("place", place, {.help = "where they lie", .at_evaluation = true});
  }
  int64_t positions() const { return chunk + 1; }  // positions of a chunk
};

const TwoHalvesConfig& options(const Place& place) {
  return place.options.get<TwoHalvesConfig>();
}

// The further sub-layer of the upper blocks.
class ChunkReader final : public Part {
 public:
  ChunkReader(const Scope& scope, const ModelConfig& model, const std::string& stack, int64_t positions)
      : name_(scope.path()),
        positions_(positions),
        means_(scope.reads_value(stack + ".means")),
        readable_(scope.reads_value(stack + ".readable")),
        found_(scope.reads_value(stack + ".found")),
        query_(scope.child("query"), model.width, model.width, Initialization(model).matrix(model.width)),
        out_(scope.child("out"), model.width, model.width, Initialization(model).residual(model.width)) {}

  // softmax(q . c / sqrt(E)) c over the two means c with the largest products.
  Variable operator()(const Forward& f, const PartInput& input) const override {
    Tape& t = f.tape;
    const auto value = [&](ValueId id) { return (*f.values)[static_cast<size_t>(id.index)]; };
    const Variable means = value(means_);
    const Variable queries = query_(t, input.normalised(t));
    const int64_t rows = queries.dim(0), length = queries.dim(1), size = queries.dim(2);
    const Variable scores = matmul(t, queries.detached(), means.detached(), {.transpose_b = true});
    const Tensor chosen =
        f.again ? f.selections->at(hash_scope(name_)) : top_k(scores.value(), 2, value(readable_).value());
    if (f.selections) (*f.selections)[hash_scope(name_)] = chosen;
    const Variable two = reshape(t, gather_rows(t, means, chosen.reshape({rows, length * 2})), {rows, length, 2, size});
    const Variable products = sum(t, multiply(t, reshape(t, queries, {rows, length, 1, size}), two), 3);
    const Variable weights =
        softmax(t, scale(t, products, 1 / std::sqrt(static_cast<double>(size))), value(found_).value());
    if (f.wants_retrievals()) report(f, chosen, weights.value(), value(readable_).value());
    return out_(t, sum(t, multiply(t, reshape(t, weights, {rows, length, 2, 1}), two), 2));
  }

 private:
  void report(const Forward& f, const Tensor& chosen, const Tensor& weights, const Tensor& readable) const {
    const std::vector<int32_t> slots = chosen.to_vector<int32_t>();
    const std::vector<double> shares = values_on_host(weights);
    const std::vector<uint8_t> flags = readable.to_vector<uint8_t>();
    for (size_t i = 0; i < slots.size(); ++i) {
      if (slots[i] < 0) continue;
      const auto cell = static_cast<int64_t>(i / 2);
      // The newest chunk that can be read is the last whole one before the position.
      const auto line = flags.begin() + cell * readable.dim(2);
      const int64_t newest =
          std::find(std::reverse_iterator(line + readable.dim(2)), std::reverse_iterator(line), 1).base() - line - 1;
      const int64_t end = (f.batch.position[i / 2] / positions_ - (newest - slots[i])) * positions_;
      f.add_retrieval(name_, {cell / f.batch.length, cell % f.batch.length, -1, end - positions_, end, shares[i], 0});
    }
  }

  std::string name_;
  int64_t positions_;
  ValueId means_, readable_, found_;
  Linear query_, out_;
};

class TwoHalves final : public Stack {
 public:
  TwoHalves(const Scope& scope, const Place& place)
      : positions_(options(place).positions()),
        lower_(make_blocks(scope.root(), place.model, 0, place.model.layers / 2)),
        means_(scope.leaves_value("means")),
        readable_(scope.leaves_value("readable")),
        found_(scope.leaves_value("found")),
        sum_(scope.state_register("sum", {place.model.width}, {.wide = true})) {
    const TwoHalvesConfig& config = options(place);
    const LogGroupId chunks = scope.state_logs("chunks", config.length, {.grain = positions_, .place = config.place});
    log_ = scope.state_log(chunks, "means", {place.model.width});
    const auto make = [&](const Scope& part, const ModelConfig&) {
      return std::make_unique<ChunkReader>(part, place.model, scope.path(), positions_);
    };
    upper_ = make_blocks(scope.root(), place.model, place.model.layers / 2, place.model.layers,
                         {{"chunks", Recompute::attention, make}});
  }

  Variable operator()(const Forward& f, const Variable& x) const override {
    Variable y = x;
    for (const std::unique_ptr<Block>& block : lower_) y = (*block)(f, y);
    const ChunkMeans chunks = chunk_means(f.tape, {.x = y,
                                                   .remembered = f.state.gather(log_),
                                                   .lengths = f.state.initial_lengths(log_.group),
                                                   .sums = f.state.initial(sum_),
                                                   .segments = f.state.segments(),
                                                   .batch = f.batch,
                                                   .positions = positions_});
    f.state.forget_pages(log_);
    if (f.write_state) {
      f.state.append(log_, chunks.means.value(), chunks.first, chunks.count);
      f.state.put_by_segment(sum_, chunks.sums);
    }
    const auto leave = [&](ValueId id, const Variable& value) { (*f.values)[static_cast<size_t>(id.index)] = value; };
    leave(means_, chunks.means);
    leave(readable_, Variable::constant(chunks.readable));
    leave(found_, Variable::constant(chunks.found));
    for (const std::unique_ptr<Block>& block : upper_) y = (*block)(f, y);
    return y;
  }

 private:
  int64_t positions_;
  std::vector<std::unique_ptr<Block>> lower_, upper_;
  ValueId means_, readable_, found_;
  RegisterId sum_;  // sum of the unfinished chunk
  LogId log_;
};

constexpr CompositionRule kRules[] = {{"layers", "stack.kind two_halves needs a layer for each half; use at least 2",
                                       [](const Place& place) { return place.model.layers < 2; }}};

int64_t reach(const Place& place, const TargetPlace& target) {
  const int64_t size = options(place).positions(), whole = target.position / size;
  return whole > 0 ? target.position - std::max<int64_t>(0, whole - options(place).length) * size : 0;
}

// For each position in an upper block: two matrices, the two chunks that are read, and the scores of all.
StepFlops flops(const Place& place, const StepShape& shape) {
  const auto width = static_cast<double>(place.model.width);
  const int64_t upper = (place.model.layers + 1) / 2;
  const auto times = static_cast<double>(upper * shape.rows * shape.subsequence);
  return {.learned = times * 2 * (2 * width * width + 4 * width),
          .forward = times * 2 * width * static_cast<double>(options(place).length)};
}

}  // namespace

Mechanism two_halves_stack() {
  return {.role = Role::stack,
          .kind = "two_halves",
          .help = "the upper half of the blocks reads means of chunks of what the lower half makes",
          .options = [] { return ConfigBox(TwoHalvesConfig{}); },
          .rules = kRules,
          .retrieves = true,
          .make_stack = [](const Scope& scope, const Place& place) -> std::unique_ptr<Stack> {
            return std::make_unique<TwoHalves>(scope, place);
          },
          .alignment = [](const Place& place) { return options(place).positions(); },
          .insertion = [](const Place& place) { return Insertion{.period = options(place).chunk, .ids = 1}; },
          .grain = [](const Place& place) { return options(place).positions(); },
          .reach = reach,
          .flops = flops};
}

}  // namespace quire::test
