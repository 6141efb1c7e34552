// Matrix products of training steps beside OpenBLAS, oneDNN and Eigen, in turn, on the same operands and threads.
// Prints GFLOP/s (best of the repeats) and the ratio of quire to the best of the others.
//   bench_products [THREADS [warm]]   warm: operands stay in the caches
#include <dlfcn.h>
#include <omp.h>

#include <Eigen/Core>
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <functional>
#include <string_view>
#include <thread>
#include <vector>

#include "core/thread_pool.h"
#include "kernels/backend.h"
#include "kernels/gemm.h"

#ifdef QUIRE_BENCH_OPENBLAS
#include <cblas.h>
#endif
#ifdef QUIRE_BENCH_ONEDNN
#include <dnnl.h>
#endif

namespace {

using quire::DType;
using quire::Tensor;
using Clock = std::chrono::steady_clock;
using RowMatrix = Eigen::Matrix<float, Eigen::Dynamic, Eigen::Dynamic, Eigen::RowMajor>;

struct Product {
  const char* model;
  int64_t m, n, k;
  bool transpose_a, transpose_b;
};

// Forward, input gradient and weight gradient of the layers of (a) and (b) in README.md.
const std::vector<Product> kProducts = {
    {"a q,k,v,out", 2048, 256, 256, false, true},    {"a q,k,v,out dx", 2048, 256, 256, false, false},
    {"a q,k,v,out dw", 256, 256, 2048, true, false}, {"a gate,up", 2048, 688, 256, false, true},
    {"a gate,up dx", 2048, 256, 688, false, false},  {"a gate,up dw", 688, 256, 2048, true, false},
    {"a down", 2048, 256, 688, false, true},         {"a down dx", 2048, 688, 256, false, false},
    {"a down dw", 256, 688, 2048, true, false},      {"b q,k,v,out", 512, 768, 768, false, true},
    {"b q,k,v,out dx", 512, 768, 768, false, false}, {"b q,k,v,out dw", 768, 768, 512, true, false},
    {"b up", 512, 3072, 768, false, true},           {"b up dx", 512, 768, 3072, false, false},
    {"b up dw", 3072, 768, 512, true, false},        {"b down", 512, 768, 3072, false, true},
    {"b down dx", 512, 3072, 768, false, false},     {"b down dw", 768, 3072, 512, true, false},
    {"b logits", 256, 50257, 768, false, true},      {"b logits dx", 256, 768, 50257, false, false},
    {"b logits dw", 50257, 768, 256, true, false},   {"square", 1024, 1024, 1024, false, false},
};

// Seconds of one call. Threads of the library before go to sleep first, and an untimed call wakes those of this one, as
// in a training step, where products follow each other.
double seconds(const std::function<void(size_t)>& work, size_t index, size_t copies) {
  std::this_thread::sleep_for(std::chrono::milliseconds(5));
  work(index % copies);
  const auto started = Clock::now();
  work((index + 1) % copies);
  return std::chrono::duration<double>(Clock::now() - started).count();
}

}  // namespace

int main(int argc, char** argv) {
  const int threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const bool warm = argc > 2 && std::string_view(argv[2]) == "warm";
  omp_set_num_threads(threads);
  quire::load_backends();
  quire::ThreadPool pool(threads);
  const quire::ThreadPool::Use use(pool);
  std::printf("%s, %d threads", quire::load_backends().cpu.c_str(), threads);
#ifdef QUIRE_BENCH_OPENBLAS
  openblas_set_num_threads(threads);
  std::printf(", OpenBLAS core %s", openblas_get_corename());
#endif
  std::printf("\n%-16s %6s %6s %6s %9s %9s %9s %9s %6s\n", "product", "m", "n", "k", "quire", "Eigen", "OpenBLAS",
              "oneDNN", "ratio");
  std::vector<double> ratios;
  for (const Product& p : kProducts) {
    // Operands in turn, as many as leave the caches between two uses, as in a training step.
    const int64_t bytes = 4 * (p.m * p.k + p.k * p.n + p.m * p.n);
    const auto copies = warm ? size_t{1} : static_cast<size_t>(std::clamp<int64_t>((int64_t{96} << 20) / bytes, 1, 16));
    std::vector<Tensor> a, b, c;
    for (size_t i = 0; i < copies; ++i) {
      std::vector<float> left(static_cast<size_t>(p.m * p.k)), right(static_cast<size_t>(p.k * p.n));
      for (size_t j = 0; j < left.size(); ++j) left[j] = static_cast<float>(j % 17) / 17;
      for (size_t j = 0; j < right.size(); ++j) right[j] = static_cast<float>(j % 13) / 13;
      a.push_back(Tensor::from(left, p.transpose_a ? quire::Shape{p.k, p.m} : quire::Shape{p.m, p.k}));
      b.push_back(Tensor::from(right, p.transpose_b ? quire::Shape{p.n, p.k} : quire::Shape{p.k, p.n}));
      c.push_back(Tensor::zeros({p.m, p.n}, DType::f32));
    }
    [[maybe_unused]] const auto lda = a[0].dim(1);
    [[maybe_unused]] const auto ldb = b[0].dim(1);
    std::vector<std::function<void(size_t)>> peers;
    peers.emplace_back([&](size_t i) {
      quire::ops::gemm(c[i], a[i], b[i], {.transpose_a = p.transpose_a, .transpose_b = p.transpose_b});
    });
    // Eigen has no threads of its own here: rows, or columns where they are more, are cut among the threads.
    peers.emplace_back([&](size_t i) {
      const Eigen::Map<const RowMatrix> x(a[i].data<float>(), a[i].dim(0), a[i].dim(1));
      const Eigen::Map<const RowMatrix> y(b[i].data<float>(), b[i].dim(0), b[i].dim(1));
      Eigen::Map<RowMatrix> z(c[i].data<float>(), p.m, p.n);
      const bool by_row = p.m >= p.n;
      quire::parallel_for(threads, [&](int64_t t) {
        const int64_t all = by_row ? p.m : p.n;
        const int64_t first = all * t / threads;
        const int64_t count = all * (t + 1) / threads - first;
        auto part = by_row ? z.middleRows(first, count) : z.middleRows(0, p.m);
        if (by_row) {
          if (p.transpose_a) {
            part.noalias() = x.middleCols(first, count).transpose() * y;
          } else if (p.transpose_b) {
            part.noalias() = x.middleRows(first, count) * y.transpose();
          } else {
            part.noalias() = x.middleRows(first, count) * y;
          }
        } else {
          auto columns = z.middleCols(first, count);
          if (p.transpose_a) {
            columns.noalias() = x.transpose() * y.middleCols(first, count);
          } else if (p.transpose_b) {
            columns.noalias() = x * y.middleRows(first, count).transpose();
          } else {
            columns.noalias() = x * y.middleCols(first, count);
          }
        }
      });
    });
#ifdef QUIRE_BENCH_OPENBLAS
    peers.emplace_back([&](size_t i) {
      cblas_sgemm(CblasRowMajor, p.transpose_a ? CblasTrans : CblasNoTrans, p.transpose_b ? CblasTrans : CblasNoTrans,
                  static_cast<int>(p.m), static_cast<int>(p.n), static_cast<int>(p.k), 1.0F, a[i].data<float>(),
                  static_cast<int>(lda), b[i].data<float>(), static_cast<int>(ldb), 0.0F, c[i].data<float>(),
                  static_cast<int>(p.n));
    });
#else
    peers.emplace_back();
#endif
#ifdef QUIRE_BENCH_ONEDNN
    peers.emplace_back([&](size_t i) {
      dnnl_sgemm(p.transpose_a ? 'T' : 'N', p.transpose_b ? 'T' : 'N', p.m, p.n, p.k, 1.0F, a[i].data<float>(), lda,
                 b[i].data<float>(), ldb, 0.0F, c[i].data<float>(), p.n);
    });
#else
    peers.emplace_back();
#endif
    const double flops = 2.0 * static_cast<double>(p.m) * static_cast<double>(p.n) * static_cast<double>(p.k);
    std::vector<double> best(peers.size(), 1e9);
    const int repeats = static_cast<int>(std::clamp(3e10 / flops, 5.0, 25.0));
    for (int repeat = 0; repeat < repeats; ++repeat) {
      for (size_t peer = 0; peer < peers.size(); ++peer) {
        if (peers[peer])
          best[peer] = std::min(best[peer], seconds(peers[peer], 2 * static_cast<size_t>(repeat), copies));
      }
    }
    std::vector<double> rate;
    for (const double time : best) rate.push_back(time < 1e9 ? flops / time / 1e9 : 0);
    const double ratio = rate[0] / *std::max_element(rate.begin() + 1, rate.end());
    ratios.push_back(ratio);
    std::printf("%-16s %6ld %6ld %6ld %9.1f %9.1f %9.1f %9.1f %6.2f\n", p.model, static_cast<long>(p.m),
                static_cast<long>(p.n), static_cast<long>(p.k), rate[0], rate[1], rate[2], rate[3], ratio);
  }
  std::sort(ratios.begin(), ratios.end());
  std::printf("ratio to the best of the others: least %.2f, median %.2f\n", ratios.front(), ratios[ratios.size() / 2]);
  return 0;
}
