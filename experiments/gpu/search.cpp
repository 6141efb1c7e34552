// Times the exact search of an external memory alone (search.py runs it beside FAISS and PyTorch). Prints one JSON
// object; floating-point operations are those of the scores, 2 D of a query and an entry.
#include <CLI/CLI.hpp>
#include <iostream>

#include "experiments/gpu/timing.h"
#include "kernels/knn.h"

namespace {

using namespace quire;

struct Options {
  std::string device = "cuda", type = "bf16";
  int64_t rows = 1, queries = 512, heads = 16, size = 64, entries = 8192, top_k = 32;
  int repeats = 10, calls = 1;
};

void bench(const Options& o) {
  const Device device = device_named(o.device);
  const DType dtype = o.type == "bf16" ? DType::bf16 : DType::f32;
  const auto all = [&](int64_t value) {
    return Tensor::from(std::vector<int32_t>(static_cast<size_t>(o.rows), static_cast<int32_t>(value)), {o.rows})
        .to(device);
  };
  const Tensor q = uniform({o.rows, o.queries, o.heads, o.size}, dtype, device, 1);
  ops::KnnMemory memory;
  memory.keys = uniform({o.rows, o.entries, o.heads, o.size}, dtype, device, 2);
  memory.values = Tensor::empty_like(memory.keys);
  memory.head = all(0);
  memory.length = all(o.entries);
  const Shape found{o.rows, o.queries, o.heads, o.top_k};
  const Tensor index = Tensor::empty(found, DType::i32, device);
  const Tensor score = Tensor::empty(found, DType::f32, device);
  const double seconds =
      timed(o.repeats, o.calls, device, [&] { ops::knn_search(index, score, q, memory, ops::KnnSearch::exact); });
  const double flops = 2.0 * static_cast<double>(q.numel()) * static_cast<double>(o.entries);
  std::cout
      << nlohmann::json{{"gpu", gpu_of(device)}, {"ms", seconds * 1e3}, {"tflops", flops / seconds * 1e-12}}.dump()
      << "\n";
}

}  // namespace

int main(int argc, char** argv) {
  Options options;
  CLI::App app("Times the search of an external memory alone.", "bench_search");
  app.add_option("--device", options.device)->check(CLI::IsMember({"cpu", "cuda"}));
  app.add_option("--type", options.type)->check(CLI::IsMember({"f32", "bf16"}));
  app.add_option("--rows", options.rows)->check(CLI::Range(1, 1 << 24));
  app.add_option("--queries", options.queries)->check(CLI::Range(1, 1 << 24));
  app.add_option("--heads", options.heads)->check(CLI::Range(1, 1 << 24));
  app.add_option("--size", options.size, "features of a head")->check(CLI::Range(1, 1 << 24));
  app.add_option("--entries", options.entries, "of the memory")->check(CLI::Range(1, 1 << 24));
  app.add_option("--top-k", options.top_k, "entries that a query gets")->check(CLI::Range(1, 1 << 16));
  app.add_option("--repeats", options.repeats)->check(CLI::Range(1, 1 << 24));
  app.add_option("--calls", options.calls, "timed at once")->check(CLI::Range(1, 1 << 24));
  CLI11_PARSE(app, argc, argv);
  try {
    bench(options);
    return 0;
  } catch (const std::exception& error) {
    std::cerr << "bench_search: error: " << error.what() << "\n";
    return 1;
  }
}
