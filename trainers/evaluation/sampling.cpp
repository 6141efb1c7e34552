#include "trainers/evaluation/sampling.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <vector>

#include "core/random.h"

namespace quire {

int32_t sample_token(std::span<const float> logits, const SamplingOptions& options, double draw) {
  // Ties go to the lower id, so that a seed gives the same text everywhere.
  if (options.temperature == 0) {
    return static_cast<int32_t>(std::max_element(logits.begin(), logits.end()) - logits.begin());
  }
  std::vector<int32_t> order(logits.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
  });
  if (options.top_k > 0 && static_cast<size_t>(options.top_k) < order.size()) {
    order.resize(static_cast<size_t>(options.top_k));
  }
  std::vector<double> weights;
  double total = 0;
  const double top = logits[static_cast<size_t>(order[0])];
  for (const int32_t id : order) {
    weights.push_back(std::exp((static_cast<double>(logits[static_cast<size_t>(id)]) - top) / options.temperature));
    total += weights.back();
  }
  if (options.top_p < 1) {
    // Keeps the smallest set of most likely tokens whose probability reaches top_p.
    double kept = 0;
    size_t count = 0;
    while (count < weights.size() && kept < options.top_p * total) kept += weights[count++];
    weights.resize(std::max<size_t>(count, 1));
    total = kept;
  }
  double below = draw * total;
  for (size_t i = 0; i < weights.size(); ++i) {
    below -= weights[i];
    if (below < 0) return order[i];
  }
  return order[weights.size() - 1];
}

double sampling_draw(uint64_t seed, int64_t position) {
  const auto bits = philox(RandomKey::of(seed, 0), hash_scope("generate"), 0, static_cast<uint32_t>(position),
                           static_cast<uint32_t>(position >> 32));
  return static_cast<double>((static_cast<uint64_t>(bits[0]) << 21) ^ (bits[1] >> 11)) * 0x1p-53;
}

void exclude_bos(std::span<float> logits, const Tokenizer& tokenizer) {
  if (tokenizer.bos_id() != tokenizer.eos_id()) logits[static_cast<size_t>(tokenizer.bos_id())] = -INFINITY;
}

}  // namespace quire
