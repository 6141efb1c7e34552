#include "trainers/checkpoint/row_state.h"

#include <algorithm>
#include <charconv>

#include "core/check.h"
#include "core/files/checksum.h"
#include "core/files/file.h"
#include "core/json.h"
#include "trainers/checkpoint/checkpoint_folder.h"
#include "trainers/checkpoint/checkpoint_meta.h"

namespace quire {

namespace {

constexpr std::string_view kPrefix = "state-";
constexpr const char* kText = "rows";
constexpr const char* kHint = "use another checkpoint of the run";

std::string part_name(int64_t begin, int64_t end) {
  return fmt::format("{}{:08}-{:08}", kPrefix, begin, end);
}

std::string raw_file_name(const RowRange& range) {
  return range.part + ".rows";
}

std::optional<RowRange> range_of(const std::string& part) {
  RowRange range{part, -1, -1};
  const char* end = part.data() + part.size();
  const auto first = std::from_chars(part.data() + kPrefix.size(), end, range.begin);
  if (first.ec != std::errc{} || first.ptr == end) return std::nullopt;
  const auto second = std::from_chars(first.ptr + 1, end, range.end);
  if (second.ec != std::errc{} || part_name(range.begin, range.end) != part) return std::nullopt;
  return range;
}

nlohmann::ordered_json to_json(const std::vector<RowPart>& parts) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const RowPart& part : parts) {
    json.push_back({{"name", part.name},
                    {"dtype", name_of(part.dtype)},
                    {"shape", std::vector<int64_t>(part.shape.begin(), part.shape.end())}});
  }
  return json;
}

std::optional<DType> dtype_named(const std::string& name) {
  for (const DType type :
       {DType::f64, DType::f32, DType::bf16, DType::i64, DType::i32, DType::u16, DType::i8, DType::f8, DType::u8}) {
    if (name == name_of(type)) return type;
  }
  return std::nullopt;
}

int64_t bytes_of(const std::vector<RowPart>& parts) {
  int64_t bytes = 0;
  for (const RowPart& part : parts) bytes += part.bytes();
  return bytes;
}

[[noreturn]] void damaged(const CheckpointReader& reader, const std::string& file, const std::string& what) {
  fail(ErrorKind::checkpoint, "{}: {}; {}", (reader.path() / file).string(), what, kHint);
}

// Returns the numbers of the rows [begin, end) of a file.
Tensor counts_of(const CheckpointReader& reader, const RowRange& range, const SavedRows& saved, const std::string& name,
                 int64_t begin, int64_t end) {
  for (const NamedTensor& counts : saved.counts) {
    if (counts.name != name) continue;
    if (!(counts.tensor.shape() == Shape{range.end - range.begin})) {
      damaged(reader, part_file_name(range.part, 1),
              fmt::format("{} is {} but there are {} rows", name, counts.tensor.shape().to_string(),
                          range.end - range.begin));
    }
    return counts.tensor.slice(0, begin - range.begin, end - range.begin);
  }
  fail(ErrorKind::checkpoint, "{}: has no {}; the checkpoint is of another model",
       (reader.path() / part_file_name(range.part, 1)).string(), name);
}

// Checks the bytes that are then loaded, so a change of the file in between has no effect.
void load_rows(const CheckpointReader& reader, const RowRange& range, StatePool& state, int64_t first_row,
               int64_t begin, int64_t end) {
  const SavedRows saved = read_saved_rows(reader, range);
  require_fitting(saved.parts, state.row_parts());
  state.load_counts(begin - first_row, end - first_row,
                    [&](const std::string& name) { return counts_of(reader, range, saved, name, begin, end); });
  const std::string name = raw_file_name(range);
  const File file = reader.open_file(name);
  for (int64_t row = begin; row < end; ++row) {
    int64_t offset = (row - range.begin) * saved.row_bytes;
    Checksum checksum;
    state.load_row(row - first_row, [&](std::span<std::byte> bytes) {
      if (file.read_at(offset, bytes) != bytes.size()) {
        damaged(reader, name, fmt::format("ends inside row {}, or became shorter while it was read", row));
      }
      checksum.add(bytes);
      offset += static_cast<int64_t>(bytes.size());
    });
    if (checksum.text() != saved.checksums[static_cast<size_t>(row - range.begin)]) {
      damaged(reader, name, fmt::format("row {} is damaged (wrong checksum), or changed while it was read", row));
    }
  }
}

}  // namespace

std::vector<RowRange> row_ranges(const CheckpointReader& reader) {
  const int64_t rows = checkpoint_meta(reader).rows;
  std::vector<RowRange> ranges;
  for (const std::string& part : reader.parts()) {
    if (part.rfind(kPrefix, 0) != 0) continue;
    const std::optional<RowRange> range = range_of(part);
    if (!range || range->end <= range->begin) damaged(reader, part_file_name(part, 1), "its name gives no rows");
    ranges.push_back(*range);
  }
  std::sort(ranges.begin(), ranges.end(), [](const RowRange& a, const RowRange& b) { return a.begin < b.begin; });
  const auto refuse = [&](const std::string& what) {
    fail(ErrorKind::checkpoint, "{}: {}; {}, or --drop-state to start without carried state", reader.path().string(),
         what, kHint);
  };
  int64_t next = 0;
  for (const RowRange& range : ranges) {
    if (range.begin > next) refuse(fmt::format("no file holds the state of rows {} to {}", next, range.begin - 1));
    if (range.begin < next) refuse(fmt::format("{} holds the state of row {} again", range.part, range.begin));
    next = range.end;
  }
  if (next < rows) refuse(fmt::format("no file holds the state of rows {} to {}", next, rows - 1));
  if (next > rows) refuse(fmt::format("{} holds more than the {} rows of the run", ranges.back().part, rows));
  return ranges;
}

SavedRows read_saved_rows(const CheckpointReader& reader, const RowRange& range) {
  const std::string file = part_file_name(range.part, 1);
  CheckpointPart part = reader.read_part(range.part);
  SavedRows saved;
  saved.counts = std::move(part.tensors);
  try {
    const auto text =
        std::find_if(part.texts.begin(), part.texts.end(), [](const auto& t) { return t.first == kText; });
    const auto json = parse_json(text != part.texts.end() ? text->second : "");
    for (const auto& entry : json.at("parts")) {
      const auto dtype = entry.at("dtype").get<std::string>();
      std::vector<int64_t> shape;
      int64_t room = kLargestJsonInteger;  // the number of elements fits as well
      for (const auto& size : entry.at("shape")) {
        shape.push_back(json_integer(size));
        room /= std::max<int64_t>(shape.back(), 1);
      }
      if (!dtype_named(dtype) || shape.size() >= kMaxRank || room == 0) {
        damaged(reader, file, fmt::format("rows of {} [{}] are unknown here", dtype, fmt::join(shape, ", ")));
      }
      saved.parts.push_back({entry.at("name").get<std::string>(), *dtype_named(dtype), Shape(shape)});
    }
    saved.row_bytes = json_integer(json.at("row_bytes"));
    saved.checksums = json.at("checksums").get<std::vector<std::string>>();
  } catch (const nlohmann::json::exception&) {
    damaged(reader, file, "does not say what its rows are");
  }
  if (static_cast<int64_t>(saved.checksums.size()) != range.end - range.begin ||
      saved.row_bytes != bytes_of(saved.parts)) {
    damaged(reader, file, "what it says of its rows contradicts itself");
  }
  return saved;
}

void save_row_state(CheckpointFolder& folder, const StatePool& state, int64_t first_row) {
  if (state.rows() == 0) return;
  const RowRange range{part_name(first_row, first_row + state.rows()), first_row, first_row + state.rows()};
  std::vector<std::string> checksums;
  folder.write_raw(raw_file_name(range), [&](const WriteBytes& write) {
    for (int64_t row = 0; row < state.rows(); ++row) {
      Checksum checksum;
      state.save_row(row, [&](std::span<const std::byte> bytes) {
        checksum.add(bytes);
        write(bytes);
      });
      checksums.push_back(checksum.text());
    }
  });
  const std::vector<RowPart> parts = state.row_parts();
  const nlohmann::ordered_json json{
      {"row_bytes", bytes_of(parts)}, {"parts", to_json(parts)}, {"checksums", checksums}};
  folder.write(CheckpointPart{range.part, state.save_counts(), {{kText, json.dump()}}});
}

void load_row_state(const CheckpointReader& reader, StatePool& state, int64_t first_row) {
  const int64_t last_row = first_row + state.rows();
  const std::vector<RowRange> ranges = row_ranges(reader);
  const int64_t rows = ranges.empty() ? 0 : ranges.back().end;
  if (last_row > rows) {
    fail(ErrorKind::checkpoint, "{}: has {} rows but row {} is wanted; it was made with other data.rows",
         reader.path().string(), rows, last_row - 1);
  }
  for (const RowRange& range : ranges) {
    const int64_t begin = std::max(first_row, range.begin);
    const int64_t end = std::min(last_row, range.end);
    if (begin < end) load_rows(reader, range, state, first_row, begin, end);
  }
}

}  // namespace quire
