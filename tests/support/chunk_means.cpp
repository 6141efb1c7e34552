#include "tests/support/chunk_means.h"

#include <algorithm>
#include <cmath>

#include "tests/support/compare.h"

namespace quire::test {

namespace {

using Values = std::vector<double>;

Values on_host(const Tensor& tensor) {
  // Planning reads tensors without values.
  return tensor.is_meta() ? Values(static_cast<size_t>(tensor.numel())) : values_of(tensor);
}

Tensor like(const Tensor& other, const Values& values, const Shape& shape) {
  return converted(Tensor::from(values, shape), other.dtype()).to(other.device());
}

void add_times(double* to, double factor, const double* from, int64_t size) {
  for (int64_t i = 0; i < size; ++i) to[i] += factor * from[i];
}

double product(const double* a, const double* b, int64_t size) {
  double sum = 0;
  for (int64_t i = 0; i < size; ++i) sum += a[i] * b[i];
  return sum;
}

// A position of a chunk.
struct Part {
  int64_t at, chunk;
  double weight;
};

}  // namespace

ChunkMeans chunk_means(Tape& tape, const ChunkMeansInputs& in) {
  const Batch& batch = in.batch;
  const int64_t size = in.x.dim(2), most = in.remembered.dim(1), slots = most + batch.length / in.positions + 1;
  const Values x = on_host(in.x.value()), remembered = on_host(in.remembered);
  Values sums = on_host(in.sums), means(static_cast<size_t>(batch.rows * slots * size));
  for (int64_t row = 0; row < batch.rows; ++row) {
    std::copy_n(remembered.begin() + row * most * size, most * size, means.begin() + row * slots * size);
  }
  std::vector<int32_t> readable(batch.tokens.size() * 2);
  std::vector<Part> parts;
  ChunkMeans result;
  result.first.resize(static_cast<size_t>(batch.rows));
  result.count = result.first;
  int64_t end = 0;  // behind the newest chunk
  for (size_t s = 0; s < in.segments.size(); ++s) {
    const Segment& segment = in.segments[s];
    const int64_t row = segment.row * slots;
    if (s == 0 || segment.row != in.segments[s - 1].row) end = row + most;
    const int64_t begin = end;
    double* const sum = &sums[s * (size + 1)];
    double& count = sum[size];
    size_t whole = parts.size();  // parts of whole chunks
    for (int64_t t = segment.begin; t < segment.begin + segment.count; ++t) {
      const int64_t at = batch.at(segment.row, t);
      readable[2 * at] = static_cast<int32_t>(std::max(begin - in.lengths[s], end - most));
      readable[2 * at + 1] = static_cast<int32_t>(end);
      add_times(sum, 1, &x[at * size], size);
      ++count;
      parts.push_back({at, end, 0});
      if ((batch.position[at] + 1) % in.positions != 0) continue;
      for (; whole < parts.size(); ++whole) parts[whole].weight = 1 / count;
      add_times(&means[end++ * size], 1 / count, sum, size);
      std::fill_n(sum, size + 1, 0.0);
    }
    parts.resize(whole);
    if (!segment.last) continue;
    result.first[segment.row] = begin - row;
    result.count[segment.row] = end - begin;
  }
  result.readable = Tensor::from(readable, {batch.rows, batch.length, 2});
  result.sums = Tensor::from(sums, in.sums.shape()).to(in.sums.device());
  result.means = tape.output(like(in.x.value(), means, {batch.rows, slots, size}), {&in.x});
  if (!result.means.needs_gradient()) return result;
  tape.record("chunk_means", result.means, [x = in.x, parts, size](const Tensor& gradient) {
    const Values dmeans = on_host(gradient);
    Values dx(static_cast<size_t>(x.shape().numel()));
    for (const Part& part : parts) add_times(&dx[part.at * size], part.weight, &dmeans[part.chunk * size], size);
    x.gradient()->add(like(x.value(), dx, x.shape()));
  });
  return result;
}

Tensor best_two(const Tensor& queries, const Tensor& means, const Tensor& readable) {
  const int64_t size = queries.dim(2);
  const Values q = on_host(queries), c = on_host(means);
  const std::vector<int32_t> range = readable.to_vector<int32_t>();
  std::vector<int32_t> chosen(range.size(), -1);
  for (size_t i = 0; i < chosen.size(); i += 2) {
    double scores[2] = {-INFINITY, -INFINITY};
    for (int32_t chunk = range[i]; chunk < range[i + 1]; ++chunk) {
      const double score = product(&q[i / 2 * size], &c[chunk * size], size);
      if (score <= scores[0]) continue;
      chosen[i] = chunk;
      scores[0] = score;
      if (score <= scores[1]) continue;
      std::swap(chosen[i], chosen[i + 1]);
      std::swap(scores[0], scores[1]);
    }
  }
  return Tensor::from(chosen, readable.shape());
}

std::vector<double> weights_of(const Tensor& queries, const Tensor& means, const Tensor& chosen) {
  const int64_t size = queries.dim(2);
  const Values q = on_host(queries), c = on_host(means);
  const std::vector<int32_t> chunks = chosen.to_vector<int32_t>();
  Values weights(chunks.size());
  for (size_t i = 0; i < weights.size(); i += 2) {
    if (chunks[i + 1] < 0) continue;
    const double* const query = &q[i / 2 * size];
    const auto score = [&](int32_t chunk) { return product(query, &c[chunk * size], size) / std::sqrt(size); };
    if (chunks[i] >= 0) weights[i] = 1 / (1 + std::exp(score(chunks[i + 1]) - score(chunks[i])));
    weights[i + 1] = 1 - weights[i];
  }
  return weights;
}

}  // namespace quire::test
