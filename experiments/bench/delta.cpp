// The gated delta rule beside its recurrence written plainly, in turn, on one thread: microseconds a token and head,
// the medians of the rounds.
//   bench_delta [ROUNDS]
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <vector>

#include "core/thread_pool.h"
#include "kernels/backend.h"
#include "kernels/delta.h"

namespace {

using quire::DType;
using quire::Tensor;
using Clock = std::chrono::steady_clock;

constexpr int64_t kTokens = 2048, kHeads = 4;

// Values that repeat after `period`, from low on to high.
Tensor filled(const quire::Shape& shape, int64_t period, float low, float high) {
  std::vector<float> values(static_cast<size_t>(shape.numel()));
  for (size_t i = 0; i < values.size(); ++i) {
    const auto place = static_cast<float>(static_cast<int64_t>(i) * 7 % period) / static_cast<float>(period);
    values[i] = low + (high - low) * place;
  }
  return Tensor::from(values, shape);
}

// One head after the other, token by token; the compiler makes vectors of the inner loops.
void plain_recurrence(const Tensor& out, const Tensor& last, const quire::ops::DeltaInputs& in) {
  const int64_t tokens = in.q.dim(0), heads = in.q.dim(1), key = in.q.dim(2), value = in.v.dim(2);
  std::vector<float> u(static_cast<size_t>(value)), decay(static_cast<size_t>(key));
  for (int64_t h = 0; h < heads; ++h) {
    float* const state = last.data<float>() + h * key * value;
    std::copy_n(in.state.data<float>() + h * key * value, key * value, state);
    for (int64_t t = 0; t < tokens; ++t) {
      const int64_t line = t * heads + h;
      const float* const q = in.q.data<float>() + line * key;
      const float* const k = in.k.data<float>() + line * key;
      const float* const v = in.v.data<float>() + line * value;
      const float* const g = in.g.data<float>() + line * in.g.dim(2);
      const float rate = in.write.data<float>()[line];
      float* const y = out.data<float>() + line * value;
      for (int64_t d = 0; d < key; ++d) decay[static_cast<size_t>(d)] = std::exp(g[in.g.dim(2) == 1 ? 0 : d]);
      for (int64_t j = 0; j < value; ++j) u[static_cast<size_t>(j)] = v[j];
      for (int64_t d = 0; d < key; ++d) {
        const float e = decay[static_cast<size_t>(d)], x = k[d];
        for (int64_t j = 0; j < value; ++j) {
          const float decayed = e * state[d * value + j];
          state[d * value + j] = decayed;
          u[static_cast<size_t>(j)] -= x * decayed;
        }
      }
      for (int64_t j = 0; j < value; ++j) y[j] = 0;
      for (int64_t d = 0; d < key; ++d) {
        const float x = rate * k[d], read = static_cast<float>(in.scale) * q[d];
        for (int64_t j = 0; j < value; ++j) {
          const float next = state[d * value + j] + x * u[static_cast<size_t>(j)];
          state[d * value + j] = next;
          y[j] += read * next;
        }
      }
    }
  }
}

double microseconds(const std::function<void()>& work) {
  const auto started = Clock::now();
  work();
  return std::chrono::duration<double, std::micro>(Clock::now() - started).count() /
         static_cast<double>(kTokens * kHeads);
}

double median(std::vector<double> values) {
  std::ranges::sort(values);
  return values[values.size() / 2];
}

float largest_difference(const Tensor& a, const Tensor& b) {
  float largest = 0;
  for (int64_t i = 0; i < a.numel(); ++i)
    largest = std::max(largest, std::abs(a.data<float>()[i] - b.data<float>()[i]));
  return largest;
}

void compare(const char* gate, int64_t size, int64_t features, int rounds) {
  using quire::ops::DeltaInputs;
  const float unit = 1 / std::sqrt(static_cast<float>(size));
  const DeltaInputs in{.q = filled({kTokens, kHeads, size}, 101, -unit, unit),
                       .k = filled({kTokens, kHeads, size}, 103, -unit, unit),
                       .v = filled({kTokens, kHeads, size}, 107, -1, 1),
                       .g = filled({kTokens, kHeads, features}, 109, -0.2F, -0.001F),
                       .erase = filled({kTokens, kHeads, 1}, 113, 0.1F, 1),
                       .write = filled({kTokens, kHeads, 1}, 113, 0.1F, 1),
                       .state = filled({1, kHeads, size, size}, 127, -1, 1),
                       .segments = Tensor::from(std::vector<int32_t>{0, static_cast<int32_t>(kTokens)}, {1, 2}),
                       .scale = unit};
  const auto like = [](const Tensor& x) { return Tensor::empty_like(x); };
  const Tensor out = like(in.v), last = like(in.state), plain_out = like(in.v), plain_last = like(in.state);
  const Tensor chunks = Tensor::empty({quire::ops::delta_chunks(kTokens, 1), kHeads, size, size}, DType::f32);
  const quire::ops::DeltaGradients to{like(in.q),     like(in.k),     like(in.v),    like(in.g),
                                      like(in.erase), like(in.write), like(in.state)};
  std::vector<double> plain, forward, training, backward;
  for (int round = 0; round < rounds; ++round) {
    plain.push_back(microseconds([&] { plain_recurrence(plain_out, plain_last, in); }));
    forward.push_back(microseconds([&] { quire::ops::delta_rule(out, last, {}, in); }));
    training.push_back(microseconds([&] { quire::ops::delta_rule(out, last, chunks, in); }));
    backward.push_back(microseconds([&] { quire::ops::delta_rule_backward(to, out, last, chunks, in); }));
  }
  std::printf("%-8s %4lld %8.3f %8.3f %6.2f %9.3f %9.3f %12.1e\n", gate, static_cast<long long>(size), median(plain),
              median(forward), median(plain) / median(forward), median(training), median(backward),
              static_cast<double>(largest_difference(out, plain_out)));
}

}  // namespace

int main(int argc, char** argv) {
  const int rounds = argc > 1 ? std::max(1, std::atoi(argv[1])) : 9;
  quire::load_backends();
  quire::ThreadPool pool(1);
  const quire::ThreadPool::Use use(pool);
  std::printf("%s, one thread, %lld tokens, %lld heads, %d rounds\n", quire::load_backends().cpu.c_str(),
              static_cast<long long>(kTokens), static_cast<long long>(kHeads), rounds);
  std::printf("%-8s %4s %8s %8s %6s %9s %9s %12s\n", "gate", "size", "plain", "forward", "ratio", "training",
              "backward", "difference");
  for (const int64_t size : {32, 64, 128}) {
    compare("scalar", size, 1, rounds);
    compare("channel", size, size, rounds);
  }
  return 0;
}
