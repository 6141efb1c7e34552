#include "layers/state/state_save.h"

#include <algorithm>

#include "core/check.h"
#include "core/files/file.h"
#include "layers/state/state_tensors.h"

namespace quire {

namespace {

constexpr const char* kDropHint = "--drop-state starts without carried state";

// A tensor [rows, ...] of which each row is saved.
struct RowTensor {
  std::string name;
  Tensor tensor;
  bool in_file = false;
};

std::vector<RowTensor> register_values(const StateRows& state) {
  std::vector<RowTensor> values;
  for (size_t i = 0; i < state.registers.size(); ++i) {
    values.push_back({state.layout.registers()[i].name + ".value", state.registers[i].current});
  }
  return values;
}

std::vector<RowTensor> rings(const StateRows& state) {
  std::vector<RowTensor> rings;
  for (size_t i = 0; i < state.logs.size(); ++i) {
    const StateLayout::Log& log = state.layout.logs()[i];
    const bool in_file = state.groups[at(log.group.index)].options.place == LogPlace::file && state.device == kCpu;
    rings.push_back({log.name + ".ring", state.logs[i].ring(), in_file});
  }
  return rings;
}

RowPart part_of(const RowTensor& of) {
  const Shape& shape = of.tensor.shape();
  return {of.name, of.tensor.dtype(), Shape(std::span(shape.begin() + 1, shape.end()))};
}

RowTensor row_of(const RowTensor& of, int64_t row) {
  return {of.name, of.tensor.select(0, row), of.in_file};
}

// Returns the entries [n, ...] of a row's rings that belong to an extent, one or two runs of slots for each ring.
std::vector<RowTensor> entries_of(const StateRows& state, int64_t row, RowExtent extent) {
  std::vector<RowTensor> runs;
  size_t log = 0;
  for (const RowTensor& ring : rings(state)) {
    const LogPositions& positions = state.groups[at(state.layout.logs()[log++].group.index)];
    const Tensor slots = ring.tensor.select(0, row);
    const auto add = [&](int64_t begin, int64_t end) {
      if (begin < end) runs.push_back({ring.name, slots.slice(0, begin, end), ring.in_file});
    };
    if (extent == RowExtent::whole) {
      add(0, positions.slots);
      continue;
    }
    const int64_t first = positions.slot_of(row, 0), end = first + positions.length[at(row)];
    add(first, std::min(end, positions.slots));
    add(0, end - positions.slots);
  }
  return runs;
}

// use(memory) is called with one piece of the values after the other, in main memory. changes: it fills them.
template <typename Use>
void use_pieces(const RowTensor& of, bool changes, const Use& use) {
  const Tensor values = of.tensor.reshape({of.tensor.numel()});
  const int64_t max_values = kStatePieceBytes / static_cast<int64_t>(size_of(values.dtype()));
  std::vector<std::byte> copy;
  for (int64_t begin = 0; begin < values.numel(); begin += max_values) {
    const Tensor piece = values.slice(0, begin, std::min(values.numel(), begin + max_values));
    const auto bytes = static_cast<size_t>(piece.bytes());
    if (piece.device() == kCpu) {
      use(std::span(static_cast<std::byte*>(piece.raw()), bytes));
      if (of.in_file) forget_pages(piece.raw(), bytes);
      continue;
    }
    copy.resize(bytes);
    if (!changes) piece.download(copy.data());
    use(std::span(copy));
    if (changes) piece.upload(copy.data(), piece.numel());
  }
}

std::vector<int32_t> ages_of(const LogPositions& positions, int64_t row, int64_t clock) {
  std::vector<int32_t> ages(at(positions.capacity), 0);
  size_t entry = 0;
  for (const LogRun& run : positions.runs[at(row)]) {
    for (int64_t n = 0; n < run.count; ++n) ages[entry++] = static_cast<int32_t>(clock - run.step + 1);
  }
  return ages;
}

void set_ages(LogPositions& positions, const std::string& name, int64_t row, const std::vector<int32_t>& ages,
              int64_t clock) {
  std::vector<LogRun>& runs = positions.runs[at(row)];
  runs.clear();
  for (int64_t entry = 0; entry < positions.length[at(row)]; ++entry) {
    const int32_t ago = ages[at(entry)];
    if (ago <= 0) fail(ErrorKind::checkpoint, "state {}: entry {} of row {} has the age {}", name, entry, row, ago);
    const int64_t step = clock + 1 - ago;
    if (runs.empty() || runs.back().step != step) runs.push_back({step, 0});
    ++runs.back().count;
  }
}

void add_counts(std::vector<NamedTensor>& tensors, const std::string& name, const LogPositions& positions) {
  const auto rows = static_cast<int64_t>(positions.head.size());
  tensors.push_back({name + ".head", Tensor::from(positions.head, {rows})});
  tensors.push_back({name + ".length", Tensor::from(positions.length, {rows})});
  tensors.push_back({name + ".written", Tensor::from(positions.written, {rows})});
}

template <typename T>
void load_numbers(std::vector<T>& into, int64_t begin, int64_t end, const std::string& name, const GetTensor& get) {
  const Tensor tensor = get(name);
  const Shape expected{end - begin};
  if (!(tensor.shape() == expected) || tensor.dtype() != dtype_of<T>()) {
    fail(ErrorKind::checkpoint, "state {}: {} {} is stored but this configuration wants {} {}; {}", name,
         name_of(tensor.dtype()), tensor.shape().to_string(), name_of(dtype_of<T>()), expected.to_string(), kDropHint);
  }
  const std::vector<T> values = tensor.to_vector<T>();
  std::copy(values.begin(), values.end(), into.begin() + begin);
}

void check_positions(const LogPositions& positions, const std::string& name, int64_t row) {
  const int64_t head = positions.head[at(row)];
  const int64_t length = positions.length[at(row)];
  if (head < 0 || head >= positions.slots || length < 0 || length > positions.capacity) {
    fail(ErrorKind::checkpoint, "state {}: row {} has head {} and length {} for {} slots", name, row, head, length,
         positions.slots);
  }
  if (!positions.options.filled_with_zeros && positions.written[at(row)] < length) {
    fail(ErrorKind::checkpoint, "state {}: row {} has {} entries of {} written", name, row, length,
         positions.written[at(row)]);
  }
}

// Returns the bytes of a row of which `entries` of each group of logs are taken.
int64_t bytes_with(const StateRows& state,
                   const std::function<int64_t(const LogPositions&, const std::string& name)>& entries) {
  int64_t bytes = 0;
  for (const RowTensor& values : register_values(state)) bytes += part_of(values).bytes();
  std::vector<int64_t> taken;
  for (size_t i = 0; i < state.groups.size(); ++i) {
    const LogPositions& positions = state.groups[i];
    taken.push_back(entries(positions, state.layout.log_groups()[i].name));
    if (positions.options.ages) bytes += positions.capacity * static_cast<int64_t>(sizeof(int32_t));
  }
  size_t log = 0;
  for (const RowTensor& ring : rings(state)) {
    const int64_t of_entry = part_of(ring).bytes() / ring.tensor.dim(1);
    bytes += taken[at(state.layout.logs()[log++].group.index)] * of_entry;
  }
  return bytes;
}

}  // namespace

std::vector<RowPart> row_parts(const StateRows& state) {
  std::vector<RowPart> parts;
  for (const RowTensor& values : register_values(state)) parts.push_back(part_of(values));
  for (size_t i = 0; i < state.groups.size(); ++i) {
    if (!state.groups[i].options.ages) continue;
    parts.push_back({state.layout.log_groups()[i].name + ".ages", DType::i32, {state.groups[i].capacity}});
  }
  for (const RowTensor& ring : rings(state)) parts.push_back(part_of(ring));
  return parts;
}

void require_fitting(std::span<const RowPart> stored, std::span<const RowPart> expected) {
  const auto has = [](std::span<const RowPart> parts, const std::string& name) {
    return std::any_of(parts.begin(), parts.end(), [&](const RowPart& part) { return part.name == name; });
  };
  for (const RowPart& part : stored) {
    if (has(expected, part.name)) continue;
    fail(ErrorKind::checkpoint, "state {}: is stored but this configuration has none of it; {}", part.name, kDropHint);
  }
  for (const RowPart& part : expected) {
    if (has(stored, part.name)) continue;
    fail(ErrorKind::checkpoint, "state {}: this configuration wants it but it is not stored; {}", part.name, kDropHint);
  }
  for (size_t i = 0; i < expected.size(); ++i) {
    const RowPart& a = stored[i];
    const RowPart& b = expected[i];
    if (a.name != b.name) {
      fail(ErrorKind::checkpoint, "state {}: is stored where this configuration has {}; {}", a.name, b.name, kDropHint);
    }
    if (a.shape == b.shape && a.dtype == b.dtype) continue;
    fail(ErrorKind::checkpoint, "state {}: rows of {} {} are stored but this configuration wants {} {}; {}", a.name,
         name_of(a.dtype), a.shape.to_string(), name_of(b.dtype), b.shape.to_string(), kDropHint);
  }
}

void save_row(const StateRows& state, int64_t row, const WriteBytes& write, RowExtent extent) {
  for (const RowTensor& values : register_values(state)) use_pieces(row_of(values, row), false, write);
  for (const LogPositions& positions : state.groups) {
    if (!positions.options.ages) continue;
    const std::vector<int32_t> ages = ages_of(positions, row, state.clock);
    write(std::as_bytes(std::span(ages)));
  }
  for (const RowTensor& entries : entries_of(state, row, extent)) use_pieces(entries, false, write);
}

int64_t row_bytes(const StateRows& state, int64_t row, RowExtent extent) {
  return bytes_with(state, [&](const LogPositions& positions, const std::string&) {
    return extent == RowExtent::whole ? positions.slots : positions.length[at(row)];
  });
}

int64_t readable_bytes(const StateRows& state, const GetTensor& get) {
  return bytes_with(state, [&](const LogPositions& positions, const std::string& name) {
    std::vector<int64_t> length(1);
    load_numbers(length, 0, 1, name + ".length", get);
    if (length[0] < 0 || length[0] > positions.capacity) {
      fail(ErrorKind::checkpoint, "state {}: {} entries of {}", name, length[0], positions.capacity);
    }
    return length[0];
  });
}

std::vector<NamedTensor> save_counts(const StateRows& state) {
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < state.registers.size(); ++i) {
    const std::string& name = state.layout.registers()[i].name;
    tensors.push_back({name + ".empty", Tensor::from(state.registers[i].empty, {state.rows})});
  }
  for (size_t i = 0; i < state.groups.size(); ++i) {
    add_counts(tensors, state.layout.log_groups()[i].name, state.groups[i]);
  }
  return tensors;
}

void load_counts(StateRows& state, int64_t begin, int64_t end, const GetTensor& get) {
  for (size_t i = 0; i < state.registers.size(); ++i) {
    load_numbers(state.registers[i].empty, begin, end, state.layout.registers()[i].name + ".empty", get);
  }
  for (size_t i = 0; i < state.groups.size(); ++i) {
    LogPositions& positions = state.groups[i];
    const std::string& name = state.layout.log_groups()[i].name;
    load_numbers(positions.head, begin, end, name + ".head", get);
    load_numbers(positions.length, begin, end, name + ".length", get);
    load_numbers(positions.written, begin, end, name + ".written", get);
    for (int64_t row = begin; row < end; ++row) check_positions(positions, name, row);
  }
}

void load_row(StateRows& state, int64_t row, const ReadBytes& read, RowExtent extent) {
  for (const RowTensor& values : register_values(state)) use_pieces(row_of(values, row), true, read);
  for (size_t i = 0; i < state.groups.size(); ++i) {
    LogPositions& positions = state.groups[i];
    if (!positions.options.ages) continue;
    std::vector<int32_t> ages(at(positions.capacity));
    read(std::as_writable_bytes(std::span(ages)));
    set_ages(positions, state.layout.log_groups()[i].name, row, ages, state.clock);
  }
  for (const RowTensor& entries : entries_of(state, row, extent)) use_pieces(entries, true, read);
  clear_derived(state, row);
}

std::vector<NamedTensor> state_tensors(const StateRows& state) {
  std::vector<NamedTensor> tensors;
  for (size_t i = 0; i < state.registers.size(); ++i) {
    const std::string& name = state.layout.registers()[i].name;
    tensors.push_back({name + ".value", state.registers[i].current});
    tensors.push_back({name + ".empty", Tensor::from(state.registers[i].empty, {state.rows})});
  }
  for (size_t i = 0; i < state.groups.size(); ++i) {
    const LogPositions& positions = state.groups[i];
    const std::string& name = state.layout.log_groups()[i].name;
    add_counts(tensors, name, positions);
    if (!positions.options.ages) continue;
    std::vector<int32_t> ages;
    for (int64_t row = 0; row < state.rows; ++row) {
      const std::vector<int32_t> of_row = ages_of(positions, row, state.clock);
      ages.insert(ages.end(), of_row.begin(), of_row.end());
    }
    tensors.push_back({name + ".ages", Tensor::from(ages, {state.rows, positions.capacity})});
  }
  for (const RowTensor& ring : rings(state)) tensors.push_back({ring.name, ring.tensor});
  return tensors;
}

}  // namespace quire
