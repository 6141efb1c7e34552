// Golden landmark, kind infer: chunks of a document, read with the blocks stored before.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "layers/mixers/landmark_heads.h"
#include "tests/golden/golden_file.h"
#include "tests/golden/tensor_parts.h"
#include "tests/support/compare.h"
#include "tests/support/head_reader.h"

namespace quire::test {
namespace {

LandmarkConfig config_of(const GoldenCase& golden) {
  LandmarkConfig config;
  config.block = golden.number("block_size");
  config.top_k = golden.number("top_k");
  config.carry.length = golden.number("cache_blocks");
  config.carry.in_training = true;
  const std::string selection = golden.text("selection");
  config.selection = selection == "max_over_heads"    ? BlockSelection::token
                     : selection == "max_over_tokens" ? BlockSelection::head
                                                      : BlockSelection::token_and_head;
  return config;
}

RopeConfig rope_of(const GoldenCase& golden) {
  RopeConfig rope;
  rope.base = golden.real("rope_base");
  rope.layout = golden.text("rope") == "half" ? RopeLayout::half : RopeLayout::interleaved;
  return rope;
}

using Reader = HeadReader<LandmarkHeads>;

Reader reader_of(const GoldenCase& golden, int64_t rows, int64_t value_size, int64_t longest) {
  const int64_t heads = golden.number("heads"), size = golden.number("d_head");
  golden.expect_only("scale", 1 / std::sqrt(static_cast<double>(size)));
  const Position position = golden.text("rope") == "none" ? Position::none : Position::rope;
  return Reader(golden.dtype(), rows, longest, [&](const Scope& scope) {
    return LandmarkHeads(scope, config_of(golden), {heads, heads, size, value_size}, position, rope_of(golden),
                         std::make_shared<PositionTables>(), Initializer::constant(0));
  });
}

int32_t blocks_in(const StatePool& pool) {
  for (const NamedTensor& saved : pool.tensors()) {
    if (saved.name == "blocks.length") return static_cast<int32_t>(saved.tensor.to_vector<int64_t>().front());
  }
  return -1;
}

class Inference {
 public:
  explicit Inference(GoldenCase& golden)
      : golden_(golden),
        chunks_(golden.number("n_chunks")),
        heads_(golden.number("heads")),
        period_(golden.number("block_size") + 1),
        expected_(golden.number("top_k")) {
    for (int64_t c = 0; c < chunks_; ++c) lengths_.push_back(golden.get(name("in/q", c)).dim(1));
    rows_ = golden.get("in/q_c0").dim(0);
  }

  void run() {
    const int64_t longest = *std::max_element(lengths_.begin(), lengths_.end());
    const int64_t all = std::accumulate(lengths_.begin(), lengths_.end(), int64_t{0});
    Reader values = reader_of(golden_, rows_, golden_.number("d_head"), longest);
    Reader places = reader_of(golden_, rows_, all, longest);
    std::vector<int32_t> tails, blocks, starts;
    int64_t position = 0;
    for (int64_t c = 0; c < chunks_; ++c) {
      const int64_t length = lengths_[static_cast<size_t>(c)];
      blocks.push_back(blocks_in(values.pool()));
      tails.push_back(static_cast<int32_t>(position % period_));
      expect_landmarks(c, position);
      const int64_t before = std::min(position / period_, expected_ + 1);
      starts.push_back(static_cast<int32_t>(before * period_ + position % period_));

      const Tensor q = golden_.get(name("in/q", c)), k = golden_.get(name("in/k", c));
      golden_.expect(name("out/o", c), values.read(q, k, golden_.get(name("in/v", c))));
      const Tensor mixed = places.read(q, k, one_hot(length, position, all));
      expect_choice(c, values_of(mixed), position, all);
      position += length;
    }
    golden_.expect("out/n_blocks", Tensor::from(blocks, {chunks_}));
    golden_.expect("out/incomplete_len", Tensor::from(tails, {chunks_}));
    golden_.expect("out/start_index", Tensor::from(starts, {chunks_}));
  }

 private:
  static std::string name(const char* prefix, int64_t chunk) {
    return std::string(prefix) + "_c" + std::to_string(chunk);
  }

  // They stand where the reader takes them for such.
  void expect_landmarks(int64_t chunk, int64_t position) const {
    std::vector<int32_t> marks;
    int32_t tokens = 0;
    for (int64_t t = 0; t < lengths_[static_cast<size_t>(chunk)]; ++t) {
      marks.push_back((position + t) % period_ == period_ - 1 ? 1 : 0);
      tokens += 1 - marks.back();
    }
    EXPECT_EQ(golden_.get(name("in/is_landmark", chunk)).to_vector<int32_t>(), marks);
    EXPECT_EQ(golden_.get("in/raw_chunk_len").to_vector<int32_t>()[static_cast<size_t>(chunk)], tokens);
  }

  // Values [R, T, H, N] of tokens from `position` on: 1 at the token's place in the document.
  Tensor one_hot(int64_t length, int64_t position, int64_t all) const {
    std::vector<double> values(static_cast<size_t>(rows_ * length * heads_ * all), 0);
    for (int64_t line = 0; line < rows_ * length * heads_; ++line) {
      values[static_cast<size_t>(line * all + position + line / heads_ % length)] = 1;
    }
    return converted(Tensor::from(values, {rows_, length, heads_, all}), golden_.dtype()).to(test_device());
  }

  // mixed [R, T, H, N]: probabilities by place in the document.
  void expect_choice(int64_t chunk, const std::vector<double>& mixed, int64_t position, int64_t all) {
    const int64_t length = lengths_[static_cast<size_t>(chunk)];
    const int64_t tail = position % period_;
    const int64_t columns = golden_.get(name("out/prob", chunk)).dim(3);
    const int64_t read = (columns - tail - length) / period_;
    std::vector<int32_t> chosen;
    std::vector<double> probabilities;
    for (int64_t i = 0; i < rows_ * heads_ * length; ++i) {
      const int64_t row = i / length / heads_, head = i / length % heads_, t = i % length;
      const double* const of_query = mixed.data() + ((row * length + t) * heads_ + head) * all;
      std::vector<int64_t> blocks;
      for (int64_t block = 0; block < position / period_; ++block) {
        const double* const begin = of_query + block * period_;
        if (std::any_of(begin, begin + period_, [](double p) { return p > 0; })) blocks.push_back(block);
      }
      for (int64_t n = 0; n < expected_; ++n) {
        chosen.push_back(n < static_cast<int64_t>(blocks.size()) ? static_cast<int32_t>(blocks[static_cast<size_t>(n)])
                                                                 : -1);
      }
      ASSERT_EQ(static_cast<int64_t>(blocks.size()), read) << "chunk " << chunk << ", query " << i;
      for (const int64_t block : blocks) {
        probabilities.insert(probabilities.end(), of_query + block * period_, of_query + (block + 1) * period_);
      }
      probabilities.insert(probabilities.end(), of_query + position - tail, of_query + position + length);
    }
    golden_.expect(name("out/sel", chunk), Tensor::from(chosen, {rows_, heads_, length, expected_}));
    golden_.expect(name("out/prob", chunk),
                   converted(Tensor::from(probabilities, {rows_, heads_, length, columns}), golden_.dtype()));
  }

  GoldenCase& golden_;
  int64_t chunks_, heads_, period_, expected_, rows_ = 0;
  std::vector<int64_t> lengths_;
};

TEST(GoldenLandmark, Inference) {
  GoldenFile(golden_folder(), "landmark").for_each_case("infer", [](GoldenCase& golden) { Inference(golden).run(); });
}

}  // namespace
}  // namespace quire::test
