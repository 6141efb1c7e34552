// Queries and keys of the first layer of a checkpoint without positions, computed in f64 from its weights alone, and
// what its tokens should then read: an independent reading for tests of quire trace.
#pragma once

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "trainers/checkpoint/checkpoint.h"

namespace quire::test {

class FirstLayer {
 public:
  using Vector = std::vector<double>;

  FirstLayer(const std::filesystem::path& checkpoint, int64_t heads, int64_t vocabulary)
      : heads_(heads), vocabulary_(vocabulary) {
    const CheckpointReader reader = CheckpointReader::open(checkpoint);
    for (const NamedTensor& one : reader.read_part("model").tensors) {
      if (one.tensor.dtype() != DType::f32) continue;
      const std::vector<float> values = one.tensor.to_vector<float>();
      weights_[one.name] = {values.begin(), values.end()};
    }
    width_ = static_cast<int64_t>(weight("blocks.0.attention_norm.weight").size());
  }

  const Vector& weight(const std::string& name) const { return weights_.at(name); }
  int64_t head_size() const { return width_ / heads_; }

  // Reads tokens; ids beyond the vocabulary are those of inserted tokens.
  void read(const std::vector<int32_t>& ids) {
    for (const int32_t id : ids) {
      const bool inserted = id >= vocabulary_;
      const Vector& table = weight(inserted ? "embedding.inserted" : "embedding.weight");
      const auto row = table.begin() + (inserted ? id - vocabulary_ : id) * width_;
      Vector x(row, row + width_);
      double squares = 0;
      for (const double value : x) squares += value * value;
      const double scale = 1 / std::sqrt(squares / static_cast<double>(width_) + 1e-5);
      for (size_t i = 0; i < x.size(); ++i) x[i] *= scale * weight("blocks.0.attention_norm.weight")[i];
      queries_.push_back(product("blocks.0.attention.query.weight", x));
      keys_.push_back(product("blocks.0.attention.key.weight", x));
    }
  }
  // The logit of a query and the key at a position, and of a query and the mean key of several positions.
  double logit(int64_t query, int64_t key, int64_t head) const { return mean_logit(query, key, key + 1, head); }
  double mean_logit(int64_t query, int64_t begin, int64_t end, int64_t head) const {
    double sum = 0;
    for (int64_t key = begin; key < end; ++key) {
      sum += std::inner_product(of(queries_, query, head), of(queries_, query, head) + head_size(),
                                of(keys_, key, head), 0.0);
    }
    return sum / static_cast<double>(end - begin) / std::sqrt(static_cast<double>(head_size()));
  }
  // The logit of a query and a learned key [H, D].
  double learned_logit(int64_t query, const std::string& name, int64_t head) const {
    return std::inner_product(of(queries_, query, head), of(queries_, query, head) + head_size(),
                              weight(name).begin() + head * head_size(), 0.0) /
           std::sqrt(static_cast<double>(head_size()));
  }
  // The sum of the exponentials of logits.
  double mass(int64_t query, int64_t begin, int64_t end, int64_t head) const {
    double sum = 0;
    for (int64_t key = begin; key < end; ++key) sum += std::exp(logit(query, key, head));
    return sum;
  }

 private:
  Vector::const_iterator of(const std::vector<Vector>& all, int64_t position, int64_t head) const {
    return all[static_cast<size_t>(position)].begin() + head * head_size();
  }
  Vector product(const std::string& name, const Vector& x) const {
    Vector y;
    for (auto row = weight(name).begin(); row != weight(name).end(); row += width_) {
      y.push_back(std::inner_product(x.begin(), x.end(), row, 0.0));
    }
    return y;
  }

  int64_t heads_, vocabulary_, width_ = 0;
  std::map<std::string, Vector> weights_;
  std::vector<Vector> queries_, keys_;
};

}  // namespace quire::test
