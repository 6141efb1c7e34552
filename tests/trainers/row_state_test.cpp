// Tests carried state that some ranks save and others load.
#include "trainers/checkpoint/row_state.h"

#include <gtest/gtest.h>

#include "core/files/file_io.h"
#include "tests/support/compare.h"
#include "tests/support/expect_error.h"
#include "tests/support/hand_batch.h"
#include "tests/support/temporary_directory.h"
#include "trainers/checkpoint/checkpoint_folder.h"
#include "trainers/checkpoint/checkpoint_meta.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

constexpr int64_t kRows = 8;
constexpr int64_t kLength = 3;

// Registers of two types, logs with ages, logs in a file: one of everything.
struct Layout {
  StateLayout layout;
  RegisterId mean = layout.add_register("mean", {3});
  RegisterId place = layout.add_register("place", {1}, {.dtype = DType::i64});
  LogGroupId memory = layout.add_log_group("memory", 7, {.waits = true, .ages = true});
  LogId keys = layout.add_log(memory, "keys", {2}, DType::bf16);
  LogId inputs = layout.add_log(memory, "inputs", {1, 2});
  LogId cache = layout.add_log(layout.add_log_group("", 5, {.place = LogPlace::file}), "cache", {4});
};

StatePool pool_of(int64_t rows) {
  return {Layout().layout, rows, kLength, DType::f32, kCpu};
}

// A step of the global rows from `first_row` on. What a row reads depends on the row and the step alone.
void step(StatePool& pool, int64_t first_row, int64_t number) {
  const Layout of;
  std::vector<uint8_t> starts;
  const auto values = [&](int64_t scale, const Shape& of_row) {
    std::vector<float> all;
    for (int64_t row = 0; row < pool.rows(); ++row) {
      for (int64_t i = 0; i < of_row.numel(); ++i) {
        all.push_back(static_cast<float>(scale * (100 * (first_row + row) + number) + i));
      }
    }
    std::vector<int64_t> sizes{pool.rows()};
    sizes.insert(sizes.end(), of_row.begin(), of_row.end());
    return Tensor::from(all, Shape(sizes));
  };
  for (int64_t row = 0; row < pool.rows(); ++row) starts.push_back((first_row + row + number) % 4 == 0 ? 1 : 0);
  pool.begin_step(one_segment(pool.rows(), kLength, starts));
  const StateView view = pool.view(0, pool.rows());
  view.put(of.mean, values(1, {3}));
  if (number % 2 == 0) {
    view.put(of.place, Tensor::from(std::vector<int64_t>(static_cast<size_t>(pool.rows()), number), {pool.rows(), 1}));
  }
  view.append(of.keys, values(2, {kLength, 2}));
  view.append(of.inputs, values(3, {kLength, 1, 2}));
  view.append(of.cache, values(5, {kLength, 4}));
  pool.commit();
}

StatePool trained(int64_t first_row, int64_t last_row) {
  StatePool pool = pool_of(last_row - first_row);
  for (int64_t number = 1; number <= 5; ++number) step(pool, first_row, number);
  return pool;
}

using Ranges = std::vector<std::pair<int64_t, int64_t>>;

fs::path save(const TemporaryDirectory& folder, const Ranges& ranges) {
  const auto write_files = [&](CheckpointFolder& into) {
    for (const auto& [begin, end] : ranges) save_row_state(into, trained(begin, end), begin);
  };
  return write_checkpoint(folder.path(), 5, write_files, CheckpointMeta{.step = 5, .rows = kRows}.to_json());
}

void expect_rows(const StatePool& pool, int64_t first_row, const StatePool& all) {
  const std::vector<NamedTensor> mine = pool.tensors();
  const std::vector<NamedTensor> expected = all.tensors();
  ASSERT_EQ(mine.size(), expected.size());
  for (size_t i = 0; i < mine.size(); ++i) {
    EXPECT_TRUE(same_bits(mine[i].tensor, expected[i].tensor.slice(0, first_row, first_row + pool.rows())))
        << mine[i].name << " from row " << first_row;
  }
}

TEST(RowState, AnyRanksReadWhatAnyOthersWrote) {
  const StatePool all = trained(0, kRows);
  for (const Ranges& written : {Ranges{{0, 8}}, Ranges{{0, 3}, {3, 8}}, Ranges{{5, 8}, {0, 1}, {1, 5}}}) {
    const TemporaryDirectory folder;
    const CheckpointReader reader = CheckpointReader::open(save(folder, written));
    EXPECT_EQ(row_ranges(reader).size(), written.size());
    for (const auto& [begin, end] : Ranges{{0, 8}, {0, 4}, {4, 8}, {2, 5}, {7, 8}, {3, 3}}) {
      StatePool pool = pool_of(end - begin);
      // Ages count from the commits of the pool that is loaded, whatever it did before.
      if (end > begin) step(pool, begin + 1, 9);
      load_row_state(reader, pool, begin);
      expect_rows(pool, begin, all);
      if (end == begin) continue;
      // And it goes on as the one that was saved.
      StatePool further = trained(begin, end);
      step(pool, begin, 6);
      step(further, begin, 6);
      expect_rows(pool, 0, further);
    }
  }
}

TEST(RowState, SaysWhatItsBytesAre) {
  const TemporaryDirectory folder;
  const fs::path path = save(folder, {{0, 3}, {3, 8}});
  const CheckpointReader reader = CheckpointReader::open(path);
  EXPECT_EQ(reader.parts(), (std::vector<std::string>{"state-00000000-00000003", "state-00000003-00000008"}));
  const SavedRows saved = read_saved_rows(reader, row_ranges(reader).at(1));
  std::vector<std::string> parts;
  for (const RowPart& part : saved.parts) parts.push_back(part.name + name_of(part.dtype) + part.shape.to_string());
  EXPECT_EQ(parts, (std::vector<std::string>{"mean.valuef32[3]", "place.valuei64[1]", "memory.agesi32[7]",
                                             "memory.keys.ringbf16[7, 2]", "memory.inputs.ringf32[7, 1, 2]",
                                             "cache.ringf32[8, 4]"}));
  EXPECT_EQ(saved.row_bytes, 3 * 4 + 8 + 7 * 4 + 7 * 2 * 2 + 7 * 2 * 4 + 8 * 4 * 4);
  const std::vector<std::byte> bytes = read_file(path / "state-00000003-00000008.rows");
  ASSERT_EQ(static_cast<int64_t>(bytes.size()), 5 * saved.row_bytes);
  ASSERT_EQ(saved.checksums.size(), 5U);
  const auto row_bytes = static_cast<size_t>(saved.row_bytes);
  for (size_t row = 0; row < 5; ++row) {
    EXPECT_EQ(saved.checksums[row], checksum_of(std::span(bytes).subspan(row * row_bytes, row_bytes))) << row;
  }
}

// A file that changes after it was verified: rows that nobody wants are not read, the others not taken.
TEST(RowState, WhatIsLoadedIsWhatWasVerified) {
  const TemporaryDirectory folder;
  const fs::path path = save(folder, {{0, 8}});
  const CheckpointReader reader = CheckpointReader::open(path);
  const fs::path file = path / "state-00000000-00000008.rows";
  const std::vector<std::byte> good = read_file(file);
  const size_t row_bytes = good.size() / kRows;
  StatePool pool = pool_of(4);
  for (size_t byte = 5 * row_bytes; byte < 6 * row_bytes; byte += 17) {
    std::vector<std::byte> bad = good;
    bad[byte] ^= std::byte{0x20};
    write_file_durably(file, bad);
    load_row_state(reader, pool, 0);
    try {
      load_row_state(reader, pool, 4);
      ADD_FAILURE() << "byte " << byte;
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::checkpoint) << error.what();
    }
  }
  std::vector<std::byte> bad = good;
  bad[6 * row_bytes - 1] ^= std::byte{1};
  write_file_durably(file, bad);
  EXPECT_ERROR(load_row_state(reader, pool, 4), ErrorKind::checkpoint,
               "row 5 is damaged (wrong checksum), or changed while it was read; use another checkpoint of the run");
  write_file_durably(file, std::span(good).first(5 * row_bytes - 1));
  load_row_state(reader, pool, 0);
  EXPECT_ERROR(load_row_state(reader, pool, 4), ErrorKind::checkpoint, "ends inside row 4");
  fs::remove(file);
  EXPECT_ERROR(load_row_state(reader, pool, 0), ErrorKind::checkpoint, "state-00000000-00000008.rows");
}

TEST(RowState, EachRowIsThereOnce) {
  const auto refused = [](const Ranges& ranges, const char* message) {
    const TemporaryDirectory folder;
    const CheckpointReader reader = CheckpointReader::open(save(folder, ranges));
    StatePool pool = pool_of(2);
    EXPECT_ERROR(load_row_state(reader, pool, 0), ErrorKind::checkpoint, message);
  };
  refused({{0, 3}, {4, 8}}, "no file holds the state of rows 3 to 3");
  refused({{2, 8}}, "no file holds the state of rows 0 to 1");
  refused({{0, 3}, {3, 6}}, "no file holds the state of rows 6 to 7");
  refused({}, "no file holds the state of rows 0 to 7");
  refused({{0, 4}, {3, 8}}, "state-00000003-00000008 holds the state of row 3 again");
  refused({{0, 4}, {4, 9}}, "state-00000004-00000009 holds more than the 8 rows of the run");
}

TEST(RowState, RowsAndStateOfAnotherRunAreRefused) {
  const TemporaryDirectory folder;
  const CheckpointReader reader = CheckpointReader::open(save(folder, {{0, 8}}));
  StatePool more = pool_of(3);
  EXPECT_ERROR(load_row_state(reader, more, 6), ErrorKind::checkpoint,
               "has 8 rows but row 8 is wanted; it was made with other data.rows");
  StatePool wide(Layout().layout, 2, kLength, DType::f64, kCpu);
  EXPECT_ERROR(load_row_state(reader, wide, 0), ErrorKind::checkpoint,
               "state mean.value: rows of f32 [3] are stored but this configuration wants f64 [3]; --drop-state");
  StatePool longer(Layout().layout, 2, kLength + 1, DType::f32, kCpu);
  EXPECT_ERROR(load_row_state(reader, longer, 0), ErrorKind::checkpoint, "state cache.ring: rows of f32 [8, 4]");
}

}  // namespace
}  // namespace quire::test
