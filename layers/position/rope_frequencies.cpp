#include "layers/position/rope_frequencies.h"

#include <algorithm>
#include <cmath>
#include <numbers>

namespace quire {

namespace {

std::vector<double> unscaled(double base, int64_t pairs) {
  std::vector<double> frequencies;
  for (int64_t i = 0; i < pairs; ++i) {
    frequencies.push_back(std::pow(base, -static_cast<double>(i) / static_cast<double>(pairs)));
  }
  return frequencies;
}

double dynamic_base(double base, const DynamicScaling& scaling, int64_t dims) {
  const auto original = static_cast<double>(scaling.original_length);
  const double length = std::max(static_cast<double>(scaling.length), original);
  const auto count = static_cast<double>(dims);
  return base * std::pow(scaling.factor * length / original - scaling.factor + 1, count / (count - 2));
}

void scale_llama3(std::vector<double>& frequencies, const Llama3Scaling& scaling) {
  for (double& f : frequencies) {
    const double turns = static_cast<double>(scaling.original_length) * f / (2 * std::numbers::pi);
    const double kept = std::clamp(
        (turns - scaling.low_frequency_factor) / (scaling.high_frequency_factor - scaling.low_frequency_factor), 0.0,
        1.0);
    f *= kept + (1 - kept) / scaling.factor;
  }
}

void scale_yarn(std::vector<double>& frequencies, const YarnScaling& scaling, double base) {
  const auto dims = static_cast<double>(2 * frequencies.size());
  // The pair that turns so many times within the original length.
  const auto pair_of = [&](double turns) {
    return dims * std::log(static_cast<double>(scaling.original_length) / (2 * std::numbers::pi * turns)) /
           (2 * std::log(base));
  };
  double first = pair_of(scaling.beta_fast), last = pair_of(scaling.beta_slow);
  if (scaling.truncate) first = std::floor(first), last = std::ceil(last);
  first = std::max(first, 0.0), last = std::min(last, dims - 1);
  if (first == last) last += 0.001;
  for (size_t i = 0; i < frequencies.size(); ++i) {
    const double divided = std::clamp((static_cast<double>(i) - first) / (last - first), 0.0, 1.0);
    frequencies[i] *= 1 - divided + divided / scaling.factor;
  }
}

void scale_longrope(std::vector<double>& frequencies, const LongropeScaling& scaling) {
  const std::vector<double>& divisors =
      scaling.length > scaling.original_length ? scaling.long_factors : scaling.short_factors;
  for (size_t i = 0; i < frequencies.size(); ++i) frequencies[i] /= divisors.at(i);
}

double attention_factor(const YarnScaling& scaling) {
  const auto g = [&](double k) { return scaling.factor <= 1 ? 1 : 0.1 * k * std::log(scaling.factor) + 1; };
  if (scaling.attention_factor) return *scaling.attention_factor;
  return scaling.mscale ? g(*scaling.mscale) / g(*scaling.mscale_all_dim) : g(1);
}

double attention_factor(const LongropeScaling& scaling) {
  if (scaling.attention_factor) return *scaling.attention_factor;
  const auto original = static_cast<double>(scaling.original_length);
  const double factor = scaling.factor.value_or(static_cast<double>(scaling.length) / original);
  return factor <= 1 ? 1 : std::sqrt(1 + std::log(factor) / std::log(original));
}

}  // namespace

std::vector<double> rope_frequencies(const RopeConfig& rope, int64_t dims) {
  const RopeScalingConfig& scaling = rope.scaling;
  const bool dynamic = scaling.kind == RopeScaling::dynamic;
  std::vector<double> frequencies =
      unscaled(dynamic ? dynamic_base(rope.base, scaling.dynamic, dims) : rope.base, dims / 2);
  switch (scaling.kind) {
    case RopeScaling::none:
    case RopeScaling::dynamic:
      break;
    case RopeScaling::linear:
      for (double& f : frequencies) f /= scaling.linear.factor;
      break;
    case RopeScaling::llama3:
      scale_llama3(frequencies, scaling.llama3);
      break;
    case RopeScaling::yarn:
      scale_yarn(frequencies, scaling.yarn, rope.base);
      break;
    case RopeScaling::longrope:
      scale_longrope(frequencies, scaling.longrope);
      break;
  }
  return frequencies;
}

double rope_logit_factor(const RopeConfig& rope) {
  double factor = 1;
  if (rope.scaling.kind == RopeScaling::yarn) factor = attention_factor(rope.scaling.yarn);
  if (rope.scaling.kind == RopeScaling::longrope) factor = attention_factor(rope.scaling.longrope);
  return factor * factor;
}

double rope_logit_factor(const PositionConfig& position) {
  return position.kind == Position::rope ? rope_logit_factor(position.rope) : 1;
}

}  // namespace quire
