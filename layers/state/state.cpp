#include "layers/state/state.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "core/check.h"
#include "core/files/file.h"
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

RegisterId StateLayout::add_register(const std::string& name, const Shape& shape, bool wide) {
  registers_.push_back({name, shape, wide});
  return {static_cast<int>(registers_.size()) - 1};
}

LogId StateLayout::add_log(const std::string& name, const Shape& entry, int64_t length, const LogOptions& options) {
  QUIRE_CHECK(length > 0, "state {}: length {}", name, length);
  logs_.push_back({name, entry, length, options});
  return {static_cast<int>(logs_.size()) - 1};
}

bool StateLayout::has_files() const {
  return std::any_of(logs_.begin(), logs_.end(), [](const Log& log) { return log.options.place == LogPlace::file; });
}

StatePool::StatePool(StateLayout layout, int64_t rows, int64_t segment, DType dtype, Device device,
                     const std::filesystem::path& scratch)
    : layout_(std::move(layout)), rows_(rows), segment_(segment), dtype_(dtype), device_(device) {
  for (const StateLayout::Register& spec : layout_.registers()) {
    registers_.push_back({Tensor::zeros(with_leading({rows}, spec.shape), dtype_of(spec), device),
                          Tensor::zeros(with_leading({rows}, spec.shape), dtype_of(spec), device),
                          std::vector<uint8_t>(at(rows), 0)});
  }
  for (const StateLayout::Log& spec : layout_.logs()) {
    LogData log;
    log.slots = spec.length + (spec.options.waits ? 0 : segment);
    log.ring = make_ring(spec, log.slots, scratch);
    log.head.assign(at(rows), 0);
    log.length.assign(at(rows), spec.options.filled_with_zeros ? spec.length : 0);
    log.taken.assign(at(rows), -1);
    log.runs.resize(at(rows));
    log.written.assign(at(rows), 0);
    log.document.assign(at(rows), 0);
    logs_.push_back(std::move(log));
  }
}

Tensor StatePool::make_ring(const StateLayout::Log& spec, int64_t slots, const std::filesystem::path& scratch) const {
  const Shape shape = with_leading({rows_, slots}, spec.entry);
  const DType dtype = spec.options.dtype.value_or(dtype_);
  if (spec.options.place == LogPlace::device || device_.kind == DeviceKind::meta) {
    return Tensor::zeros(shape, dtype, device_);
  }
  const size_t bytes = static_cast<size_t>(shape.numel()) * size_of(dtype);
  if (spec.options.place == LogPlace::file) {
    if (!(device_ == kCpu)) {
      fail(ErrorKind::config, "{}: {}", spec.name, kNoFilesOnGpu);
    }
    const std::filesystem::path folder = scratch.empty() ? std::filesystem::temp_directory_path() : scratch;
    return Tensor::over(map_scratch_file(folder, bytes), shape, dtype, device_);
  }
  Allocator& allocator = device_backend(device_.kind).host_allocator();
  const std::shared_ptr<void> memory(allocator.allocate(bytes),
                                     [&allocator, bytes](void* block) { allocator.deallocate(block, bytes); });
  std::memset(memory.get(), 0, bytes);
  return Tensor::over(memory, shape, dtype, device_);
}

int64_t StatePool::bytes(LogPlace place) const {
  int64_t total = 0;
  if (place == LogPlace::device) {
    for (const RegisterData& data : registers_) total += data.current.bytes() + data.next.bytes();
  }
  for (size_t i = 0; i < logs_.size(); ++i) {
    if (layout_.logs()[i].options.place == place) total += logs_[i].ring.bytes();
  }
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

void StatePool::write_waiting(const StateLayout::Log& spec, LogData& log) {
  for (const Waiting& update : std::exchange(log.replacements, {})) {
    std::vector<int32_t> slot, from, count;
    for (size_t i = 0; i < update.count.size(); ++i) {
      const size_t row = at(update.begin) + i;
      const bool kept = !carries_[row].replaces && update.count[i] > 0;
      const int64_t oldest = log.head[row] - log.length[row] + log.slots;
      slot.push_back(static_cast<int32_t>((oldest + update.to[i]) % log.slots));
      from.push_back(static_cast<int32_t>(update.from[i]));
      count.push_back(static_cast<int32_t>(kept ? update.count[i] : 0));
      if (kept && spec.options.ages) {
        // The entries before, those replaced and those behind.
        std::vector<LogRun> runs;
        const int64_t end = update.to[i] + update.count[i];
        int64_t begin = 0;
        for (const LogRun& run : log.runs[row]) {
          const int64_t before = std::clamp<int64_t>(update.to[i] - begin, 0, run.count);
          const int64_t behind = std::clamp<int64_t>(begin + run.count - end, 0, run.count);
          if (before > 0) runs.push_back({run.step, before});
          if (before + behind < run.count) {
            const int64_t replaced = run.count - before - behind;
            const bool joins = !runs.empty() && runs.back().step == clock_;
            if (joins) runs.back().count += replaced;
            if (!joins) runs.push_back({clock_, replaced});
          }
          if (behind > 0) runs.push_back({run.step, behind});
          begin += run.count;
        }
        log.runs[row] = std::move(runs);
      }
    }
    const auto n = static_cast<int64_t>(slot.size());
    ops::ring_append(log.ring.slice(0, update.begin, update.begin + n), update.values, Tensor::from(slot, {n}, device_),
                     Tensor::from(from, {n}, device_), Tensor::from(count, {n}, device_), 1);
  }
}

void StatePool::advance_ages(const StateLayout::Log& spec, LogData& log, int64_t row, int64_t added) const {
  std::vector<LogRun>& runs = log.runs[at(row)];
  if (!spec.options.ages || added == 0) return;
  if (!runs.empty() && runs.back().step == clock_) {
    runs.back().count += added;
  } else {
    runs.push_back({clock_, added});
  }
  int64_t total = 0;
  for (const LogRun& run : runs) total += run.count;
  for (int64_t surplus = total - spec.length; surplus > 0;) {
    const int64_t part = std::min(surplus, runs.front().count);
    runs.front().count -= part;
    surplus -= part;
    if (runs.front().count == 0) runs.erase(runs.begin());
  }
}

void StatePool::begin_document(const StateLayout::Log& spec, LogData& log, int64_t row) {
  log.length[at(row)] = spec.options.filled_with_zeros ? spec.length : 0;
  log.runs[at(row)].clear();
  log.written[at(row)] = 0;
  ++log.document[at(row)];
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
  for (LogData& log : logs_) {
    std::fill(log.taken.begin(), log.taken.end(), -1);
    log.appends.clear();
    log.replacements.clear();
  }
  for (int64_t row = 0; row < rows_; ++row) {
    if (batch.starts[at(row)] != 0) clear_row(row);
  }
}

void StatePool::commit(std::span<const uint8_t> cleared) {
  ++clock_;
  for (RegisterData& data : registers_) {
    for (int64_t row = 0; row < rows_; ++row) {
      if (std::exchange(data.put[at(row)], uint8_t{0}) == 0 || carries_[at(row)].count == 0) continue;
      data.current.slice(0, row, row + 1).copy_from(data.next.slice(0, row, row + 1));
    }
  }
  for (size_t i = 0; i < logs_.size(); ++i) {
    LogData& log = logs_[i];
    const StateLayout::Log& spec = layout_.logs()[i];
    write_waiting(spec, log);
    for (int64_t row = 0; row < rows_; ++row) {
      if (log.taken[at(row)] >= 0 && carries_[at(row)].count > 0 && carries_[at(row)].replaces) {
        begin_document(spec, log, row);
      }
    }
    for (const Waiting& append : std::exchange(log.appends, {})) {
      std::vector<int32_t> head, from, count;
      for (size_t r = 0; r < append.count.size(); ++r) {
        // Of more entries than the ring has slots the last ones.
        const int64_t written = std::min(append.count[r], log.slots);
        head.push_back(static_cast<int32_t>(log.head[at(append.begin) + r]));
        from.push_back(static_cast<int32_t>(append.from[r] + (append.count[r] - written) * append.stride));
        count.push_back(static_cast<int32_t>(written));
      }
      const auto n = static_cast<int64_t>(head.size());
      ops::ring_append(log.ring.slice(0, append.begin, append.begin + n), append.values,
                       Tensor::from(head, {n}, device_), Tensor::from(from, {n}, device_),
                       Tensor::from(count, {n}, device_), append.stride);
    }
    for (int64_t row = 0; row < rows_; ++row) {
      const int64_t taken = std::exchange(log.taken[at(row)], -1);
      if (taken <= 0 || carries_[at(row)].count == 0) continue;
      log.head[at(row)] = (log.head[at(row)] + (spec.options.waits ? std::min(taken, log.slots) : taken)) % log.slots;
      log.length[at(row)] = std::min(spec.length, log.length[at(row)] + taken);
      log.written[at(row)] += taken;
      advance_ages(spec, log, row, std::min(taken, spec.length));
    }
    // What the step has read and written of a file: the next one reads it from there.
    if (spec.options.place == LogPlace::file && device_ == kCpu) {
      quire::forget_pages(log.ring.raw(), static_cast<size_t>(log.ring.bytes()));
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
    if (!layout_.logs()[i].options.ages) continue;
    // Commits ago, counted from 1, of each entry from the oldest on; 0 behind the last.
    const int64_t length = layout_.logs()[i].length;
    std::vector<int32_t> ages(at(rows_ * length), 0);
    for (int64_t row = 0; row < rows_; ++row) {
      size_t entry = at(row * length);
      for (const LogRun& run : logs_[i].runs[at(row)]) {
        for (int64_t n = 0; n < run.count; ++n) ages[entry++] = static_cast<int32_t>(clock_ - run.step + 1);
      }
    }
    tensors.push_back({name + ".written", Tensor::from(logs_[i].written, {rows_})});
    tensors.push_back({name + ".ages", Tensor::from(ages, {rows_, length})});
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
    current.copy_from(fitting(layout_.registers()[i].name + ".value", current.shape(), current.dtype()));
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
    if (!spec.options.ages) continue;
    for (int64_t& document : log.document) ++document;
    log.written = fitting(spec.name + ".written", {rows_}, DType::i64).to_vector<int64_t>();
    for (int64_t row = 0; row < rows_; ++row) {
      if (log.written[at(row)] < log.length[at(row)]) {
        fail(ErrorKind::checkpoint, "state {}: row {} has {} entries of {} written", spec.name, row,
             log.length[at(row)], log.written[at(row)]);
      }
    }
    const std::vector<int32_t> ages =
        fitting(spec.name + ".ages", {rows_, spec.length}, DType::i32).to_vector<int32_t>();
    for (int64_t row = 0; row < rows_; ++row) {
      std::vector<LogRun>& runs = log.runs[at(row)];
      runs.clear();
      for (int64_t entry = 0; entry < log.length[at(row)]; ++entry) {
        const int32_t ago = ages[at(row * spec.length + entry)];
        if (ago <= 0) {
          fail(ErrorKind::checkpoint, "state {}: entry {} of row {} has the age {}", spec.name, entry, row, ago);
        }
        const int64_t step = clock_ + 1 - ago;
        if (runs.empty() || runs.back().step != step) runs.push_back({step, 0});
        ++runs.back().count;
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
  if (pool_->layout_.logs()[at(id.index)].options.waits) {
    std::vector<int64_t> first, taken;
    for (int64_t row = begin_; row < end_; ++row) {
      first.push_back(pool_->carries_[at(row)].begin);
      taken.push_back(pool_->carries_[at(row)].count);
    }
    append(id, values, first, taken);
    return;
  }
  const Tensor begin = per_row([&](int64_t row) { return pool_->carries_[at(row)].begin; });
  const Tensor count = per_row([&](int64_t row) { return pool_->carries_[at(row)].count; });
  const Tensor ring = stored_ring(id);
  ops::ring_append(ring, as_type(values, ring.dtype()), ring_head(id), begin, count, 1);
  for (int64_t row = begin_; row < end_; ++row) log.taken[at(row)] = pool_->carries_[at(row)].count;
}

void StateView::append(LogId id, const Tensor& values, std::span<const int64_t> begin, std::span<const int64_t> count,
                       int64_t stride) const {
  StatePool::LogData& log = pool_->logs_[at(id.index)];
  QUIRE_CHECK(pool_->layout_.logs()[at(id.index)].options.waits, "state: entries of a log that does not wait");
  log.appends.push_back({begin_,
                         as_type(values, log.ring.dtype()),
                         {begin.begin(), begin.end()},
                         {},
                         {count.begin(), count.end()},
                         stride});
  for (int64_t row = begin_; row < end_; ++row) log.taken[at(row)] = count[at(row - begin_)];
}

void StateView::replace(LogId id, const Tensor& values, std::span<const int64_t> first,
                        std::span<const int64_t> count) const {
  StatePool::LogData& log = pool_->logs_[at(id.index)];
  QUIRE_CHECK(pool_->layout_.logs()[at(id.index)].options.waits,
              "state: replacing entries of a log that does not wait");
  std::vector<int64_t> from;
  for (const int64_t n : count) from.push_back(values.dim(1) - n);
  log.replacements.push_back({begin_,
                              as_type(values, log.ring.dtype()),
                              std::move(from),
                              {first.begin(), first.end()},
                              {count.begin(), count.end()},
                              1});
}

Tensor StateView::gather(LogId id, int64_t entries, std::span<const int64_t> first,
                         std::span<const int64_t> count) const {
  const StateLayout::Log& spec = pool_->layout_.logs()[at(id.index)];
  const StatePool::LogData& log = pool_->logs_[at(id.index)];
  const Tensor out = Tensor::empty(with_leading({rows(), entries}, spec.entry), log.ring.dtype(), pool_->device_);
  const Tensor end = per_row([&](int64_t row) {
    const size_t r = at(row - begin_);
    return (log.head[at(row)] - log.length[at(row)] + log.slots + first[r] + count[r]) % log.slots;
  });
  ops::ring_gather(out, stored_ring(id), end, per_row([&](int64_t row) { return count[at(row - begin_)]; }));
  return out;
}

std::vector<LogRun> StateView::ages(LogId id, int64_t row) const {
  std::vector<LogRun> runs = pool_->logs_[at(id.index)].runs[at(begin_ + row)];
  for (LogRun& run : runs) run.step = pool_->clock_ + 1 - run.step;
  return runs;
}

int64_t StateView::written(LogId id, int64_t row) const {
  return pool_->logs_[at(id.index)].written[at(begin_ + row)];
}

int64_t StateView::document(LogId id, int64_t row) const {
  return pool_->logs_[at(id.index)].document[at(begin_ + row)];
}

int64_t StateView::entries_within(LogId id, int64_t row, int64_t commits) const {
  const std::vector<LogRun>& runs = pool_->logs_[at(id.index)].runs[at(begin_ + row)];
  int64_t entries = 0;
  for (auto run = runs.rbegin(); run != runs.rend() && pool_->clock_ + 1 - run->step <= commits; ++run) {
    entries += run->count;
  }
  return entries;
}

void StateView::forget_pages(LogId id) const {
  if (pool_->layout_.logs()[at(id.index)].options.place != LogPlace::file || pool_->device_ != kCpu) return;
  const Tensor ring = stored_ring(id);
  quire::forget_pages(ring.raw(), static_cast<size_t>(ring.bytes()));
}

}  // namespace quire
