#include <map>

#include "core/ranks/in_process.h"
#include "core/thread_pool.h"
#include "layers/pass/host_values.h"
#include "tests/support/compare.h"
#include "tests/support/mechanism_suite.h"
#include "tests/support/small_corpus.h"
#include "tests/support/temporary_directory.h"
#include "tests/support/test_device.h"
#include "tests/support/training_run.h"
#include "trainers/evaluation/evaluator.h"
#include "trainers/run/trainer.h"
#include "trainers/setup/evaluation_config.h"

namespace quire::test {

namespace {

constexpr int64_t kSteps = 20;

// Positions of a document are one more (BOS): with steps of 8, documents end inside and exactly at the end of a row.
class SmallCorpus {
 public:
  SmallCorpus() {
    write_corpus(folder_ / "corpus.h5",
                 {{"train", texts_of_lengths({3, 15, 30, 7, 23, 40, 1, 18})}, {"valid", texts_of_lengths({20, 9, 4})}});
    corpus_ = Corpus::open(folder_ / "corpus.h5");
  }
  Corpus& operator*() { return *corpus_; }
  std::filesystem::path folder(const std::string& name) const { return folder_ / name; }

 private:
  TemporaryDirectory folder_;
  std::unique_ptr<Corpus> corpus_;
};

// Steps after which a checkpoint is hardest to get right, by the kind of moment.
std::map<std::string, int64_t> awkward_moments(const BatchOptions& options, Corpus& corpus) {
  const int64_t documents = corpus.split("train").documents();
  std::map<std::string, int64_t> moments{{"first step", 1}};
  BatchSource source(corpus, "train", options);
  int64_t dealt = 0;
  for (int64_t step = 1; step < kSteps; ++step) {
    const Cursor cursor = source.next()->after;
    int64_t free = 0;
    for (const RowCursor& row : cursor.rows) free += row.place < 0 ? 1 : 0;
    if (step > 1 && free == 0) moments.emplace("inside documents", step);
    if (step > 1 && free > 0) moments.emplace("end of a document", step);
    // The last document of an epoch has been dealt, or the first of the next.
    if (cursor.next_place / documents > dealt / documents) moments.emplace("end of an epoch", step);
    dealt = cursor.next_place;
  }
  return moments;
}

// Codebooks learn the same.
void expect_near_buffers(const ParameterStore& a, const ParameterStore& b, double tolerance) {
  ASSERT_EQ(a.buffers().size(), b.buffers().size());
  for (size_t i = 0; i < a.buffers().size(); ++i) {
    EXPECT_LT(relative_error(a.buffers()[i].value, b.buffers()[i].value), tolerance) << a.buffers()[i].name;
  }
}

struct RankResult {
  std::vector<Tensor> buffers;
  std::vector<double> losses;
  Tensor weights;
  int64_t first_row = 0;
  std::vector<NamedTensor> state;
};

// Makes the same run on ranks that are threads.
std::vector<RankResult> train_on_ranks(const RunConfig& config, Corpus& corpus, int ranks, int64_t steps) {
  std::vector<RankResult> results(static_cast<size_t>(ranks));
  run_in_process(ranks, [&](Ranks& mine) {
    RankResult& result = results[static_cast<size_t>(mine.rank())];
    ThreadPool pool(1);
    const ThreadPool::Use use(pool);
    TrainingRun run(config, corpus, &mine);
    result.losses = run.losses(steps);
    result.weights = run.training().store.values();
    for (const ParameterStore::Buffer& buffer : run.training().store.buffers()) {
      result.buffers.push_back(buffer.value);
    }
    result.first_row = run.training().first_row;
    result.state = run.training().state->tensors();
  });
  return results;
}

// Numbers of the run are rounded to these types where they are stored.
bool is_short(DType dtype) {
  return dtype == DType::i8 || dtype == DType::f8 || dtype == DType::bf16;
}

// Returns how many of the numbers that both store in a short type were rounded to the other side because the sums
// before them differ in the last bits: each is the next number of its type, and they are few. In bf16, whose numbers
// are close together near zero, it may be a later one within `carried` of the largest, because one rounding affects the
// next steps.
int64_t rounded_otherwise(const RankResult& rank, const std::vector<NamedTensor>& all, double carried) {
  const auto numbers = [](const Tensor& tensor) {
    std::vector<std::byte> bytes(static_cast<size_t>(tensor.bytes()));
    tensor.download(bytes.data());
    std::vector<int> values;
    for (size_t i = 0; i < bytes.size(); i += size_of(tensor.dtype())) {
      int value = std::to_integer<int>(bytes[i]);
      if (tensor.dtype() == DType::bf16) value |= std::to_integer<int>(bytes[i + 1]) << 8;
      values.push_back(tensor.dtype() == DType::i8 ? static_cast<int8_t>(value) : value);
    }
    return values;
  };
  int64_t stored = 0;
  int64_t otherwise = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor& tensor = rank.state[i].tensor;
    if (!is_short(tensor.dtype())) continue;
    const std::vector<int> mine = numbers(tensor);
    const Tensor rows = Tensor::empty_like(tensor);
    ops::copy(rows, all[i].tensor.slice(0, rank.first_row, rank.first_row + tensor.dim(0)));
    const std::vector<int> expected = numbers(rows);
    const bool fine = tensor.dtype() == DType::bf16;
    const std::vector<double> a = fine ? values_on_host(tensor) : std::vector<double>();
    const std::vector<double> b = fine ? values_on_host(rows) : std::vector<double>();
    double largest = 0;
    for (const double value : b) largest = std::max(largest, std::abs(value));
    for (size_t n = 0; n < mine.size(); ++n) {
      const bool close = fine && std::abs(a[n] - b[n]) <= carried * largest;
      EXPECT_TRUE(close || std::abs(mine[n] - expected[n]) <= 1) << all[i].name << ", number " << n;
      otherwise += mine[n] == expected[n] ? 0 : 1;
    }
    stored += static_cast<int64_t>(mine.size());
  }
  EXPECT_LE(100 * otherwise, stored);
  return otherwise;
}

// The other rows of state of a rank are those of the one rank that has all.
void expect_same_rows(const RankResult& rank, const std::vector<NamedTensor>& all, double tolerance) {
  ASSERT_EQ(rank.state.size(), all.size());
  for (size_t i = 0; i < all.size(); ++i) {
    const Tensor& mine = rank.state[i].tensor;
    const Tensor rows = all[i].tensor.slice(0, rank.first_row, rank.first_row + mine.dim(0));
    if (is_floating(mine.dtype()) && !is_short(mine.dtype())) {
      EXPECT_LE(relative_error(mine, rows), tolerance) << all[i].name;
    } else if (!is_short(mine.dtype())) {
      EXPECT_TRUE(same_bits(mine, rows)) << all[i].name;
    }
  }
}

void expect_near(const std::vector<double>& a, const std::vector<double>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], tolerance * std::abs(b[i])) << "step " << i + 1;
}

}  // namespace

TEST_P(MechanismTraining, ResumesBitForBit) {
  SmallCorpus corpus;
  const RunConfig run_config = config({"run.precision=f32"});
  TrainingRun straight(run_config, *corpus);
  const std::vector<double> losses = straight.losses(kSteps);
  const RunSnapshot expected = straight.snapshot();

  const std::map<std::string, int64_t> moments =
      awkward_moments(batch_options(run_config, straight.training()), *corpus);
  EXPECT_EQ(moments.size(), 4U) << "the corpus has no such moment";
  for (const auto& [moment, step] : moments) {
    TrainingRun first(run_config, *corpus);
    first.losses(step);
    const RunSnapshot saved = first.snapshot();
    const std::filesystem::path checkpoint = first.save(corpus.folder("checkpoints"));
    TrainingRun second(run_config, *corpus, checkpoint);
    EXPECT_EQ(difference(saved, second.snapshot()), "") << moment;
    const std::vector<double> rest = second.losses(kSteps - step);
    EXPECT_EQ(rest, std::vector<double>(losses.begin() + step, losses.end())) << moment << ", step " << step;
    EXPECT_EQ(difference(expected, second.snapshot()), "") << moment << ", step " << step;
  }
}

TEST_P(MechanismTraining, EvaluationLeavesTrainingUntouched) {
  SmallCorpus corpus;
  const RunConfig run_config = config({"run.precision=f32"});
  TrainingRun alone(run_config, *corpus);
  TrainingRun watched(run_config, *corpus);
  EvaluationOptions options;
  options.split = "valid";
  options.rows = 2;
  for (int64_t step = 1; step <= 6; ++step) {
    EXPECT_EQ(alone.step().loss, watched.step().loss) << "step " << step;
    const EvaluationResult result =
        evaluate(watched.training().store, evaluation_config(run_config), *corpus, watched.machine(), options);
    EXPECT_GT(result.nll, 0);
    EXPECT_EQ(difference(alone.snapshot(), watched.snapshot()), "") << "step " << step;
  }
}

TEST_P(MechanismTraining, ThreadsDoNotMatter) {
  SmallCorpus corpus;
  const RunConfig run_config = config({"run.precision=f32"});
  std::vector<RunSnapshot> snapshots;
  std::vector<std::vector<double>> losses;
  for (const int count : {1, 2}) {
    ThreadPool pool(count);
    const ThreadPool::Use use(pool);
    TrainingRun run(run_config, *corpus);
    losses.push_back(run.losses(6));
    snapshots.push_back(run.snapshot());
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(difference(snapshots[0], snapshots[1]), "");
}

// Sums of another order differ by some 1e-16 of the largest term; the steps in between carry that on.
TEST_P(MechanismTraining, AccumulationDoesNotMatter) {
  SmallCorpus corpus;
  TrainingRun one(config(), *corpus);
  TrainingRun two(config({"data.accumulate=2"}), *corpus);
  TrainingRun three(config({"data.accumulate=3"}), *corpus);
  for (int64_t step = 1; step <= 5; ++step) {
    const double loss = one.step().loss;
    for (TrainingRun* other : {&two, &three}) {
      EXPECT_NEAR(other->step().loss, loss, 1e-12 * loss) << "step " << step;
      EXPECT_LT(relative_error(other->training().store.gradients(), one.training().store.gradients()), 1e-12)
          << "step " << step;
      expect_near_buffers(other->training().store, one.training().store, 1e-12);
    }
  }
}

// Adam divides by the size of a gradient. Some are zero but for rounding (Transformer-XL: what all distances share
// cancels in the softmax), so eps is well above the rounding of f32 here; else noise would become a full step.
TEST_P(MechanismTraining, RanksDoNotMatter) {
  if (!(test_device() == kCpu)) GTEST_SKIP() << "ranks that are threads share no GPU";
  SmallCorpus corpus;
  for (const auto& [precision, of_sums] : {std::pair{"f64", 1e-12}, std::pair{"f32", 1e-5}}) {
    for (const char* rows : {"1", "3", "4"}) {  // with one row the first rank has none
      SCOPED_TRACE(std::string(precision) + ", rows " + rows);
      const std::string blocks = rows == std::string("1") ? "1" : "2";
      const RunConfig run_config = config({std::string("run.precision=") + precision, std::string("data.rows=") + rows,
                                           "data.accumulate=" + blocks, "optimizer.eps=1e-4"});
      TrainingRun one(run_config, *corpus);
      const std::vector<double> losses = one.losses(6);
      const std::vector<NamedTensor> state = one.training().state->tensors();
      const std::vector<RankResult> ranks = train_on_ranks(run_config, *corpus, 2, 6);
      for (const RankResult& rank : ranks) {
        ASSERT_EQ(rank.state.size(), state.size());
        constexpr double kCarried = 1e-3;
        const double tolerance = rounded_otherwise(rank, state, kCarried) == 0 ? of_sums : kCarried;
        expect_near(rank.losses, losses, tolerance);
        EXPECT_LT(relative_error(rank.weights, one.training().store.values()), tolerance);
        for (size_t i = 0; i < rank.buffers.size(); ++i) {
          const ParameterStore::Buffer& buffer = one.training().store.buffers()[i];
          EXPECT_LT(relative_error(rank.buffers[i], buffer.value), 10 * tolerance) << buffer.name;
        }
        expect_same_rows(rank, state, 10 * tolerance);  // activations add up what all weights differ by
      }
      EXPECT_TRUE(same_bits(ranks[0].weights, ranks[1].weights));
      for (size_t i = 0; i < ranks[0].buffers.size(); ++i) {
        EXPECT_TRUE(same_bits(ranks[0].buffers[i], ranks[1].buffers[i]));
      }
    }
  }
}

}  // namespace quire::test
