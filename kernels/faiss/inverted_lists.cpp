// Inverted lists from FAISS. Results do not depend on threads: only one is used, and no product is computed by a BLAS
// library, whose sums depend on the number of threads.
#include <faiss/IndexFlat.h>
#include <faiss/IndexIVFFlat.h>
#include <faiss/impl/IDSelector.h>
#include <faiss/utils/distances.h>
#include <omp.h>

#include <algorithm>
#include <cstring>
#include <limits>
#include <numeric>
#include <string>
#include <vector>

#include "kernels/knn_index.h"

namespace quire {

namespace {

// The number of OpenMP threads is a setting of the calling thread.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

class FaissLists final : public InvertedLists {
 public:
  FaissLists(const float* keys, int64_t count, int64_t size, int64_t lists)
      : centres_(size),
        index_(&centres_, static_cast<size_t>(size), static_cast<size_t>(lists), faiss::METRIC_INNER_PRODUCT) {
    const OneThread one;
    index_.cp.seed = 1;
    index_.cp.niter = 10;
    index_.cp.min_points_per_centroid = 1;
    // with more entries a random choice is used, because learning is most of the work
    index_.cp.max_points_per_centroid = 64;
    index_.train(count, keys);
  }

  void add(const float* keys, int64_t first, int64_t count) override {
    const OneThread one;
    std::vector<int64_t> numbers(static_cast<size_t>(count));
    std::iota(numbers.begin(), numbers.end(), first);
    index_.add_with_ids(count, keys, numbers.data());
  }

  void search(int64_t* numbers, const float* q, int64_t queries, int64_t top_k, int64_t probes, int64_t low,
              int64_t high) const override {
    const OneThread one;
    faiss::IDSelectorRange readable(low, high);
    faiss::SearchParametersIVF parameters;
    parameters.nprobe = static_cast<size_t>(std::clamp<int64_t>(probes, 1, static_cast<int64_t>(index_.nlist)));
    parameters.sel = &readable;
    std::vector<float> scores(static_cast<size_t>(queries * top_k));
    index_.search(queries, q, top_k, scores.data(), numbers, &parameters);
  }

 private:
  faiss::IndexFlatIP centres_;
  faiss::IndexIVFFlat index_;
};

std::unique_ptr<InvertedLists> learn(const float* keys, int64_t count, int64_t size, int64_t lists) {
  return std::make_unique<FaissLists>(keys, count, size, lists);
}

}  // namespace

}  // namespace quire

extern "C" __attribute__((visibility("default"))) const char* quire_register_backend(const char* build_id,
                                                                                     std::string*) {
  if (std::strcmp(build_id, QUIRE_BUILD_ID) != 0) return nullptr;
  faiss::distance_compute_blas_threshold = std::numeric_limits<int>::max();
  quire::register_inverted_lists(quire::learn);
  return "faiss";
}
