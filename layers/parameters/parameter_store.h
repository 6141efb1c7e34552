// Parameters are named slices of one flat arena; gradients are a parallel arena, moments too
// (trainers/optimizer/optimizer.h). When a model computes in bf16 the arenas are f32, and layers read the matrices from
// a copy in bf16 (publish()).
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <span>
#include <string>
#include <vector>

#include "autograd/variable.h"

namespace quire {

// Says how a parameter begins, drawn from the hash of its name, so that it does not depend on the others: normal(mean,
// std), or `transform` of values that are uniform between two numbers, the lower one never drawn.
struct Initializer {
  double mean = 0;
  double std = 0;
  double cut = 0;  // values further than cut * std from the mean are drawn again; 0 is off
  double (*transform)(double) = nullptr;
  double low = 0, high = 0;

  static Initializer constant(double value) { return {value, 0, 0}; }
  static Initializer normal(double std) { return {0, std, 0}; }
  static Initializer uniform(
      double low, double high, double (*transform)(double) = [](double x) { return x; }) {
    return {.transform = transform, .low = low, .high = high};
  }
};

class ParameterStore {
 public:
  struct Entry {
    std::string name;
    Shape shape;
    Initializer initializer;
    bool decays = true;    // takes part in weight decay: matrices do, gains and biases do not
    int64_t matrices = 0;  // linear maps [out, in] that stand below each other; 0: no linear map, such as an embedding
    int64_t offset = 0;    // in the arena, in elements
    Variable variable;     // defined after allocate()
  };
  struct Buffer {
    std::string name;
    Tensor value;  // saved, not trained, equal on all ranks
    Initializer initializer;
  };

  // Before allocate(): declares. Afterwards: finds, so that a second model (evaluation, generation) shares the weights.
  // Throws Error(checkpoint) when the name is unknown or the shape differs.
  const Entry* parameter(const std::string& name, const Shape& shape, Initializer initializer, bool decays,
                         int64_t matrices = 0);
  Buffer* buffer(const std::string& name, const Shape& shape, DType dtype, Initializer initializer);

  // Lays out the arenas (decaying parameters first) and draws the initial values. dtype: what the model computes in.
  void allocate(DType dtype, Device device, uint64_t seed);
  // For evaluation and generation: no gradients, and values that mean nothing until they are loaded.
  void allocate_frozen(DType dtype, Device device);
  // After every change of values(): brings the copy that layers read up to date. Nothing to do without one.
  void publish() const;
  bool is_allocated() const { return values_.defined(); }

  DType dtype() const { return dtype_; }                  // what the model computes in
  const Tensor& values() const { return values_; }        // [N] f32 or f64
  const Tensor& gradients() const { return gradients_; }  // [N]
  int64_t published_bytes() const { return published_.defined() ? published_.bytes() : 0; }
  int64_t decayed_elements() const { return decayed_; }  // elements [0, this) decay
  int64_t parameter_count() const;                       // without alignment gaps
  const std::deque<Entry>& entries() const { return entries_; }
  const std::deque<Buffer>& buffers() const { return buffers_; }
  // The slice of any parallel arena that belongs to a parameter.
  static Tensor slice(const Tensor& arena, const Entry& entry);
  // The value that training changes, whatever layers read.
  Tensor value(const Entry& entry) const { return slice(values_, entry); }
  void zero_gradients() const { gradients_.zero(); }

 private:
  std::deque<Entry> entries_;  // deque: addresses stay
  std::deque<Buffer> buffers_;
  std::map<std::string, Entry*, std::less<>> by_name_;
  std::map<std::string, Buffer*, std::less<>> buffers_by_name_;
  void lay_out(DType dtype, Device device);
  Tensor read_by_layers(const Entry& entry) const;

  DType dtype_ = DType::f32;
  Tensor values_;
  Tensor gradients_;
  Tensor published_;  // [decayed_] in dtype_, when values_ are of another type
  int64_t decayed_ = 0;
};

// A layer's handle of a parameter.
class Parameter {
 public:
  Parameter() = default;
  explicit Parameter(const ParameterStore::Entry* entry) : entry_(entry) {}
  operator const Variable&() const {  // NOLINT: a parameter is used wherever a variable is
    static const Variable undefined;
    return entry_ == nullptr ? undefined : entry_->variable;
  }
  bool defined() const { return entry_ != nullptr; }
  const Tensor& value() const { return entry_->variable.value(); }

 private:
  const ParameterStore::Entry* entry_ = nullptr;
};

}  // namespace quire
