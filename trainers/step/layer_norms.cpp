#include "trainers/step/layer_norms.h"

#include <algorithm>
#include <cmath>

#include "kernels/optimizer.h"

namespace quire {

namespace {

std::string layer_of(const std::string& parameter) {
  constexpr std::string_view kBlocks = "blocks.";
  const size_t begin = parameter.starts_with(kBlocks) ? kBlocks.size() : 0;
  return parameter.substr(0, parameter.find('.', begin));
}

}  // namespace

std::vector<LayerNorms> layer_norms(const TrainingState& training, Ranks& ranks) {
  const ParameterStore& store = training.store;
  std::vector<LayerNorms> layers;
  std::vector<size_t> layer_of_entry;
  for (const ParameterStore::Entry& entry : store.entries()) {
    const std::string layer = layer_of(entry.name);
    const auto found =
        std::find_if(layers.begin(), layers.end(), [&](const LayerNorms& one) { return one.layer == layer; });
    layer_of_entry.push_back(static_cast<size_t>(found - layers.begin()));
    if (found == layers.end()) layers.push_back({.layer = layer});
  }

  // Squares of the weights, which all ranks have, and of this rank's part of the gradient.
  const auto count = static_cast<int64_t>(layers.size());
  const Tensor squares = Tensor::zeros({2 * count}, DType::f64, store.values().device());
  size_t number = 0;
  for (const ParameterStore::Entry& entry : store.entries()) {
    const auto layer = static_cast<int64_t>(layer_of_entry[number++]);
    ops::squared_norm(squares.slice(0, layer, layer + 1), store.value(entry));
    for (const ArenaRange& mine : training.parts->mine()) {
      const int64_t begin = std::max(mine.begin, entry.offset);
      const int64_t end = std::min(mine.end, entry.offset + entry.shape.numel());
      if (begin >= end) continue;
      ops::squared_norm(squares.slice(0, count + layer, count + layer + 1), store.gradients().slice(0, begin, end));
    }
  }
  const std::vector<double> read = squares.to_vector<double>();
  std::vector<double> gradient(read.begin() + count, read.end());
  ranks.sum(gradient);
  for (size_t layer = 0; layer < layers.size(); ++layer) {
    layers[layer].weights = std::sqrt(read[layer]);
    layers[layer].gradient = std::sqrt(gradient[layer]);
  }
  return layers;
}

}  // namespace quire
