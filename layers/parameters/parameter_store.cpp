#include "layers/parameters/parameter_store.h"

#include <array>
#include <cmath>
#include <numbers>

#include "core/check.h"
#include "core/random.h"
#include "kernels/elementwise.h"

namespace quire {

namespace {

constexpr int64_t kAlignment = 16;  // elements: every parameter starts on a cache line

int64_t aligned(int64_t count) {
  return (count + kAlignment - 1) / kAlignment * kAlignment;
}

// Draws from Philox, keyed by the name of the parameter or buffer; normal values by Box-Muller.
std::vector<double> draw(const std::string& name, int64_t count, const Initializer& initializer, uint64_t seed) {
  std::vector<double> values(static_cast<size_t>(count), initializer.mean);
  const uint32_t scope = hash_scope(name);
  const auto random = [&](size_t i, uint32_t attempt) {
    return philox(RandomKey::of(seed, 0), scope, 0, attempt, static_cast<uint32_t>(i / 2));
  };
  const auto share = [](uint32_t bits) { return (static_cast<double>(bits) + 1) * 0x1p-32; };  // in (0, 1]
  if (initializer.transform != nullptr) {
    for (size_t i = 0; i < values.size(); ++i) {
      const double u = share(random(i, 0)[i % 2]);
      values[i] = initializer.transform(initializer.low + (initializer.high - initializer.low) * u);
    }
    return values;
  }
  if (initializer.std == 0) return values;
  const auto pair = [&](size_t i, uint32_t attempt) {
    const auto bits = random(i, attempt);
    const double u = share(bits[0]);
    const double angle = 2 * std::numbers::pi * static_cast<double>(bits[1]) * 0x1p-32;
    const double radius = initializer.std * std::sqrt(-2 * std::log(u));
    return std::array{radius * std::cos(angle), radius * std::sin(angle)};
  };
  const double cut = initializer.cut * initializer.std;
  for (size_t i = 0; i < values.size(); i += 2) {
    std::array<double, 2> z = pair(i, 0);
    for (size_t k = 0; k < 2 && i + k < values.size(); ++k) {
      for (uint32_t attempt = 1; cut > 0 && std::abs(z[k]) > cut; ++attempt) z[k] = pair(i, attempt)[k];
      values[i + k] += z[k];
    }
  }
  return values;
}

void store(const Tensor& to, const std::vector<double>& values) {
  if (to.dtype() == DType::f64) {
    to.upload(values.data(), to.numel());
  } else {
    const std::vector<float> narrow(values.begin(), values.end());
    to.upload(narrow.data(), to.numel());
  }
}

}  // namespace

const ParameterStore::Entry* ParameterStore::parameter(const std::string& name, const Shape& shape,
                                                       Initializer initializer, bool decays, int64_t matrices) {
  const auto found = by_name_.find(name);
  if (found != by_name_.end()) {
    if (!(found->second->shape == shape)) {
      fail(ErrorKind::checkpoint, "parameter {}: the model wants {} but {} is stored", name, shape.to_string(),
           found->second->shape.to_string());
    }
    return found->second;
  }
  if (is_allocated()) fail(ErrorKind::checkpoint, "parameter {}: the stored model has none of this name", name);
  entries_.push_back({name, shape, initializer, decays, matrices, 0, {}});
  by_name_[name] = &entries_.back();
  return &entries_.back();
}

ParameterStore::Buffer* ParameterStore::buffer(const std::string& name, const Shape& shape, DType dtype,
                                               Initializer initializer) {
  const auto found = buffers_by_name_.find(name);
  if (found != buffers_by_name_.end()) {
    QUIRE_CHECK(found->second->value.shape() == shape, "buffer {}: {} wanted, {} stored", name, shape.to_string(),
                found->second->value.shape().to_string());
    return found->second;
  }
  if (is_allocated()) fail(ErrorKind::checkpoint, "buffer {}: the stored model has none of this name", name);
  buffers_.push_back({name, Tensor::empty(shape, dtype, kMeta), initializer});
  buffers_by_name_[name] = &buffers_.back();
  return &buffers_.back();
}

Tensor ParameterStore::slice(const Tensor& arena, const Entry& entry) {
  return arena.slice(0, entry.offset, entry.offset + entry.shape.numel()).reshape(entry.shape);
}

void ParameterStore::lay_out(DType dtype, Device device) {
  QUIRE_CHECK(!is_allocated(), "parameters: allocated twice");
  int64_t total = 0;
  for (const bool decays : {true, false}) {
    for (Entry& entry : entries_) {
      if (entry.decays != decays) continue;
      entry.offset = total;
      total += aligned(entry.shape.numel());
    }
    if (decays) decayed_ = total;
  }
  dtype_ = dtype;
  values_ = Tensor::zeros({total}, wide_type(dtype), device);
  if (values_.dtype() != dtype) published_ = Tensor::zeros({decayed_}, dtype, device);
  for (Buffer& buffer : buffers_) buffer.value = Tensor::zeros(buffer.value.shape(), buffer.value.dtype(), device);
}

// Matrices are operands of products, in the type of the activations; vectors keep every bit.
Tensor ParameterStore::read_by_layers(const Entry& entry) const {
  return slice(entry.decays && published_.defined() ? published_ : values_, entry);
}

void ParameterStore::publish() const {
  if (published_.defined()) ops::convert(published_, values_.slice(0, 0, decayed_));
}

void ParameterStore::allocate_frozen(DType dtype, Device device) {
  lay_out(dtype, device);
  for (Entry& entry : entries_) entry.variable = Variable::constant(read_by_layers(entry));
}

void ParameterStore::allocate(DType dtype, Device device, uint64_t seed) {
  lay_out(dtype, device);
  gradients_ = Tensor::zeros(values_.shape(), values_.dtype(), device);
  for (Entry& entry : entries_) {
    if (!values_.is_meta()) store(value(entry), draw(entry.name, entry.shape.numel(), entry.initializer, seed));
    entry.variable = Variable(read_by_layers(entry), Gradient::into(slice(gradients_, entry)));
  }
  for (const Buffer& buffer : buffers_) {
    if (buffer.value.is_meta()) continue;
    store(buffer.value, draw(buffer.name, buffer.value.numel(), buffer.initializer, seed));
  }
  publish();
}

int64_t ParameterStore::parameter_count() const {
  int64_t count = 0;
  for (const Entry& entry : entries_) count += entry.shape.numel();
  return count;
}

}  // namespace quire
