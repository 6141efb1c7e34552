// Prints the most likely tokens behind a text, with their probabilities: next_token CHECKPOINT TEXT
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <numeric>

#include "core/error.h"
#include "kernels/backend.h"
#include "trainers/checkpoint/loaded_model.h"
#include "trainers/evaluation/generator.h"

int main(int argc, char** argv) {
  if (argc != 3) return 2;
  try {
    quire::load_backends();
    const quire::CheckpointReader reader = quire::open_checkpoint(argv[1], true);
    quire::LoadedModel model(reader, quire::checkpoint_config(reader), quire::Weights::trained);
    const quire::Generator generator(model.store(), model.config(), model.tokenizer(), model.machine(), argv[2]);
    const std::vector<float>& logits = generator.logits();
    std::vector<int32_t> ids(logits.size());
    std::iota(ids.begin(), ids.end(), 0);
    const auto likelier = [&](int32_t a, int32_t b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    };
    std::partial_sort(ids.begin(), ids.begin() + 5, ids.end(), likelier);
    double sum = 0;
    for (const float logit : logits) sum += std::exp(static_cast<double>(logit - logits[static_cast<size_t>(ids[0])]));
    for (int i = 0; i < 5; ++i) {
      const int32_t id = ids[static_cast<size_t>(i)];
      const double share =
          std::exp(static_cast<double>(logits[static_cast<size_t>(id)] - logits[static_cast<size_t>(ids[0])])) / sum;
      std::printf("%.4f  %s\n", share, model.tokenizer().decode({&id, 1}).c_str());
    }
  } catch (const quire::Error& error) {
    std::fprintf(stderr, "next_token: %s\n", error.what());
    return error.exit_code();
  }
}
