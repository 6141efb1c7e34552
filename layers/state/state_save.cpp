#include "layers/state/state_save.h"

#include "core/check.h"
#include "layers/state/state_tensors.h"

namespace quire {

namespace {

using GetTensor = std::function<Tensor(const std::string&)>;

// Commits ago, counted from 1, of each entry from the oldest on; 0 behind the last.
Tensor ages_of(const LogPositions& positions, int64_t rows, int64_t clock) {
  std::vector<int32_t> ages(at(rows * positions.capacity), 0);
  for (int64_t row = 0; row < rows; ++row) {
    size_t entry = at(row * positions.capacity);
    for (const LogRun& run : positions.runs[at(row)]) {
      for (int64_t n = 0; n < run.count; ++n) ages[entry++] = static_cast<int32_t>(clock - run.step + 1);
    }
  }
  return Tensor::from(ages, {rows, positions.capacity});
}

Tensor fitting(const GetTensor& get, const std::string& name, const Shape& shape, DType dtype) {
  Tensor tensor = get(name);
  if (!(tensor.shape() == shape) || tensor.dtype() != dtype) {
    fail(ErrorKind::checkpoint,
         "state {}: {} {} is stored but this configuration wants {} {}; --drop-state starts without carried state",
         name, name_of(tensor.dtype()), tensor.shape().to_string(), name_of(dtype), shape.to_string());
  }
  return tensor;
}

void load_ages(LogPositions& positions, const std::string& name, const std::vector<int32_t>& ages, int64_t clock) {
  for (size_t row = 0; row < positions.runs.size(); ++row) {
    std::vector<LogRun>& runs = positions.runs[row];
    runs.clear();
    for (int64_t entry = 0; entry < positions.length[row]; ++entry) {
      const int32_t ago = ages[row * at(positions.capacity) + at(entry)];
      if (ago <= 0) fail(ErrorKind::checkpoint, "state {}: entry {} of row {} has the age {}", name, entry, row, ago);
      const int64_t step = clock + 1 - ago;
      if (runs.empty() || runs.back().step != step) runs.push_back({step, 0});
      ++runs.back().count;
    }
  }
}

void load_positions(LogPositions& positions, const std::string& name, int64_t rows, int64_t clock,
                    const GetTensor& get) {
  const auto counts = [&](const char* what) {
    return fitting(get, name + what, {rows}, DType::i64).to_vector<int64_t>();
  };
  positions.head = counts(".head");
  positions.length = counts(".length");
  positions.written = counts(".written");
  for (size_t row = 0; row < at(rows); ++row) {
    const int64_t head = positions.head[row];
    const int64_t length = positions.length[row];
    if (head < 0 || head >= positions.slots || length < 0 || length > positions.capacity) {
      fail(ErrorKind::checkpoint, "state {}: row {} has head {} and length {} for {} slots", name, row, head, length,
           positions.slots);
    }
    if (!positions.options.filled_with_zeros && positions.written[row] < length) {
      fail(ErrorKind::checkpoint, "state {}: row {} has {} entries of {} written", name, row, length,
           positions.written[row]);
    }
  }
  if (!positions.options.ages) return;
  const Tensor ages = fitting(get, name + ".ages", {rows, positions.capacity}, DType::i32);
  load_ages(positions, name, ages.to_vector<int32_t>(), clock);
}

}  // namespace

std::vector<NamedTensor> save_state(const StateRows& state) {
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < state.registers.size(); ++i) {
    const std::string& name = state.layout.registers()[i].name;
    tensors.push_back({name + ".value", state.registers[i].current});
    tensors.push_back({name + ".empty", Tensor::from(state.registers[i].empty, {state.rows})});
  }
  for (size_t i = 0; i < state.groups.size(); ++i) {
    const std::string& name = state.layout.log_groups()[i].name;
    const LogPositions& positions = state.groups[i];
    tensors.push_back({name + ".head", Tensor::from(positions.head, {state.rows})});
    tensors.push_back({name + ".length", Tensor::from(positions.length, {state.rows})});
    tensors.push_back({name + ".written", Tensor::from(positions.written, {state.rows})});
    if (positions.options.ages) tensors.push_back({name + ".ages", ages_of(positions, state.rows, state.clock)});
  }
  for (size_t i = 0; i < state.logs.size(); ++i) {
    tensors.push_back({state.layout.logs()[i].name + ".ring", state.logs[i].ring()});
  }
  return tensors;
}

void load_state(StateRows& state, const GetTensor& get) {
  for (size_t i = 0; i < state.registers.size(); ++i) {
    StateRegister& data = state.registers[i];
    const std::string& name = state.layout.registers()[i].name;
    data.current.copy_from(fitting(get, name + ".value", data.current.shape(), data.current.dtype()));
    data.empty = fitting(get, name + ".empty", {state.rows}, DType::u8).to_vector<uint8_t>();
  }
  for (size_t i = 0; i < state.groups.size(); ++i) {
    load_positions(state.groups[i], state.layout.log_groups()[i].name, state.rows, state.clock, get);
  }
  for (size_t i = 0; i < state.logs.size(); ++i) {
    const Tensor& ring = state.logs[i].ring();
    ring.copy_from(fitting(get, state.layout.logs()[i].name + ".ring", ring.shape(), ring.dtype()));
  }
  for (int64_t row = 0; row < state.rows; ++row) clear_derived(state, row);
}

}  // namespace quire
