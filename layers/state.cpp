#include "layers/state.h"

#include <algorithm>
#include <utility>

#include "core/check.h"
#include "kernels/elementwise.h"
#include "kernels/state.h"

namespace quire {

namespace {

Shape with_leading(std::initializer_list<int64_t> leading, const Shape& rest) {
  std::vector<int64_t> sizes(leading);
  sizes.insert(sizes.end(), rest.begin(), rest.end());
  return Shape(sizes);
}

Tensor as_type(const Tensor& tensor, DType dtype) {
  if (tensor.dtype() == dtype) return tensor;
  const Tensor converted = Tensor::empty(tensor.shape(), dtype, tensor.device());
  ops::convert(converted, tensor);
  return converted;
}

size_t at(int64_t index) {
  return static_cast<size_t>(index);
}

}  // namespace

RegisterId StateLayout::add_register(const std::string& name, const Shape& shape) {
  registers_.push_back({name, shape});
  return {static_cast<int>(registers_.size()) - 1};
}

LogId StateLayout::add_log(const std::string& name, const Shape& entry, int64_t length, const LogOptions& options) {
  QUIRE_CHECK(length > 0, "state {}: length {}", name, length);
  logs_.push_back({name, entry, length, options});
  return {static_cast<int>(logs_.size()) - 1};
}

StatePool::StatePool(StateLayout layout, int64_t rows, int64_t segment, DType dtype, Device device)
    : layout_(std::move(layout)), rows_(rows), segment_(segment), dtype_(dtype), device_(device) {
  for (const StateLayout::Register& spec : layout_.registers()) {
    registers_.push_back({Tensor::zeros(with_leading({rows}, spec.shape), dtype, device),
                          Tensor::zeros(with_leading({rows}, spec.shape), dtype, device),
                          std::vector<uint8_t>(at(rows), 0)});
  }
  for (const StateLayout::Log& spec : layout_.logs()) {
    LogData log;
    log.slots = spec.length + segment;
    log.ring = Tensor::zeros(with_leading({rows, log.slots}, spec.entry), spec.options.dtype.value_or(dtype), device);
    log.head.assign(at(rows), 0);
    log.length.assign(at(rows), spec.options.filled_with_zeros ? spec.length : 0);
    log.appended.assign(at(rows), 0);
    logs_.push_back(std::move(log));
  }
}

int64_t StatePool::bytes() const {
  int64_t total = 0;
  for (const RegisterData& data : registers_) total += data.current.bytes() + data.next.bytes();
  for (const LogData& log : logs_) total += log.ring.bytes();
  return total;
}

void StatePool::clear_row(int64_t row) {
  for (RegisterData& data : registers_) data.current.slice(0, row, row + 1).zero();
  for (size_t i = 0; i < logs_.size(); ++i) {
    // The ring begins anew too: where a document's entries wrap decides how sums over them are grouped, and so the last
    // bits of its logits.
    logs_[i].head[at(row)] = 0;
    begin_document(layout_.logs()[i], logs_[i], row);
  }
}

void StatePool::begin_document(const StateLayout::Log& spec, LogData& log, int64_t row) {
  log.length[at(row)] = spec.options.filled_with_zeros ? spec.length : 0;
  if (!spec.options.filled_with_zeros) return;
  // The readable slots only: those behind the head may hold what this step appended.
  const Tensor ring = log.ring.select(0, row);
  for (int64_t age = 1; age <= spec.length; ++age) {
    ring.select(0, (log.head[at(row)] - age + log.slots) % log.slots).zero();
  }
}

void StatePool::begin_step(const Batch& batch) {
  QUIRE_CHECK(batch.rows == rows_, "state: a batch of {} rows for a pool of {}; rows never change during a run",
              batch.rows, rows_);
  QUIRE_CHECK(batch.length <= segment_, "state: a batch of {} positions for a pool of {}", batch.length, segment_);
  carries_ = carried_positions(batch);
  // What a step that failed has put or appended is forgotten.
  for (RegisterData& data : registers_) std::fill(data.put.begin(), data.put.end(), uint8_t{0});
  for (LogData& log : logs_) std::fill(log.appended.begin(), log.appended.end(), uint8_t{0});
  for (int64_t row = 0; row < rows_; ++row) {
    if (batch.starts[at(row)] != 0) clear_row(row);
  }
}

void StatePool::commit(std::span<const uint8_t> cleared) {
  for (RegisterData& data : registers_) {
    for (int64_t row = 0; row < rows_; ++row) {
      if (std::exchange(data.put[at(row)], uint8_t{0}) == 0 || carries_[at(row)].count == 0) continue;
      data.current.slice(0, row, row + 1).copy_from(data.next.slice(0, row, row + 1));
    }
  }
  for (size_t i = 0; i < logs_.size(); ++i) {
    LogData& log = logs_[i];
    for (int64_t row = 0; row < rows_; ++row) {
      const RowCarry& carry = carries_[at(row)];
      if (std::exchange(log.appended[at(row)], uint8_t{0}) == 0 || carry.count == 0) continue;
      if (carry.replaces) begin_document(layout_.logs()[i], log, row);
      log.head[at(row)] = (log.head[at(row)] + carry.count) % log.slots;
      log.length[at(row)] = std::min(layout_.logs()[i].length, log.length[at(row)] + carry.count);
    }
  }
  for (size_t row = 0; row < cleared.size(); ++row) {
    if (cleared[row] == 0) continue;
    clear_row(static_cast<int64_t>(row));
    // Slots that cannot be read may still be multiplied by a probability of zero, which NaN survives.
    for (LogData& log : logs_) log.ring.select(0, static_cast<int64_t>(row)).zero();
  }
}

std::vector<NamedTensor> StatePool::save() const {
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < registers_.size(); ++i) {
    tensors.push_back({layout_.registers()[i].name + ".value", registers_[i].current});
  }
  for (size_t i = 0; i < logs_.size(); ++i) {
    const std::string& name = layout_.logs()[i].name;
    tensors.push_back({name + ".ring", logs_[i].ring});
    tensors.push_back({name + ".head", Tensor::from(logs_[i].head, {rows_})});
    tensors.push_back({name + ".length", Tensor::from(logs_[i].length, {rows_})});
  }
  return tensors;
}

void StatePool::load(const std::function<Tensor(const std::string&)>& get) {
  const auto fitting = [&](const std::string& name, const Shape& shape, DType dtype) {
    Tensor tensor = get(name);
    if (!(tensor.shape() == shape) || tensor.dtype() != dtype) {
      fail(ErrorKind::checkpoint,
           "state {}: {} {} is stored but this configuration wants {} {}; --drop-state starts without carried state",
           name, name_of(tensor.dtype()), tensor.shape().to_string(), name_of(dtype), shape.to_string());
    }
    return tensor;
  };
  for (size_t i = 0; i < registers_.size(); ++i) {
    const Tensor& current = registers_[i].current;
    current.copy_from(fitting(layout_.registers()[i].name + ".value", current.shape(), dtype_));
  }
  for (size_t i = 0; i < logs_.size(); ++i) {
    const StateLayout::Log& spec = layout_.logs()[i];
    LogData& log = logs_[i];
    log.ring.copy_from(fitting(spec.name + ".ring", log.ring.shape(), log.ring.dtype()));
    log.head = fitting(spec.name + ".head", {rows_}, DType::i64).to_vector<int64_t>();
    log.length = fitting(spec.name + ".length", {rows_}, DType::i64).to_vector<int64_t>();
    for (int64_t row = 0; row < rows_; ++row) {
      if (log.head[at(row)] < 0 || log.head[at(row)] >= log.slots || log.length[at(row)] < 0 ||
          log.length[at(row)] > spec.length) {
        fail(ErrorKind::checkpoint, "state {}: row {} has head {} and length {} for {} slots", spec.name, row,
             log.head[at(row)], log.length[at(row)], log.slots);
      }
    }
  }
}

const RowCarry& StateView::carry(int64_t row) const {
  return pool_->carries_[at(begin_ + row)];
}

Tensor StateView::per_row(const std::function<int64_t(int64_t)>& value) const {
  std::vector<int32_t> values;
  for (int64_t row = begin_; row < end_; ++row) values.push_back(static_cast<int32_t>(value(row)));
  return Tensor::from(values, {rows()}, pool_->device_);
}

Tensor StateView::current(RegisterId id) const {
  return pool_->registers_[at(id.index)].current.slice(0, begin_, end_);
}

void StateView::put(RegisterId id, const Tensor& next) const {
  StatePool::RegisterData& data = pool_->registers_[at(id.index)];
  data.next.slice(0, begin_, end_).copy_from(next);
  for (int64_t row = begin_; row < end_; ++row) data.put[at(row)] = 1;
}

Tensor StateView::stored_ring(LogId id) const {
  return pool_->logs_[at(id.index)].ring.slice(0, begin_, end_);
}

Tensor StateView::ring(LogId id) const {
  return as_type(stored_ring(id), pool_->dtype_);
}

Tensor StateView::ring_head(LogId id) const {
  return per_row([&](int64_t row) { return pool_->logs_[at(id.index)].head[at(row)]; });
}

std::vector<int64_t> StateView::lengths(LogId id) const {
  const std::vector<int64_t>& all = pool_->logs_[at(id.index)].length;
  return {all.begin() + begin_, all.begin() + end_};
}

Tensor StateView::gather(LogId id) const {
  const StateLayout::Log& spec = pool_->layout_.logs()[at(id.index)];
  const Tensor ring = stored_ring(id);
  Tensor out = Tensor::empty(with_leading({rows(), spec.length}, spec.entry), ring.dtype(), pool_->device_);
  const Tensor length = per_row([&](int64_t row) { return pool_->logs_[at(id.index)].length[at(row)]; });
  ops::ring_gather(out, ring, ring_head(id), length);
  return as_type(out, pool_->dtype_);
}

void StateView::append(LogId id, const Tensor& values) const {
  StatePool::LogData& log = pool_->logs_[at(id.index)];
  const Tensor begin = per_row([&](int64_t row) { return pool_->carries_[at(row)].begin; });
  const Tensor count = per_row([&](int64_t row) { return pool_->carries_[at(row)].count; });
  const Tensor ring = stored_ring(id);
  ops::ring_append(ring, as_type(values, ring.dtype()), ring_head(id), begin, count);
  for (int64_t row = begin_; row < end_; ++row) log.appended[at(row)] = 1;
}

}  // namespace quire
