#include "core/files/hdf5_file.h"

#include <gtest/gtest.h>
#include <hdf5.h>

#include <array>
#include <cstring>
#include <thread>

#include "core/bfloat16.h"
#include "core/files/file_io.h"
#include "core/float8.h"
#include "tests/support/expect_error.h"
#include "tests/support/small_disk.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

using test::SmallDisk;
using test::TemporaryDirectory;

// Writes types that h5py writes and Hdf5Writer does not: fixed-length text, short numbers, bools, compressed chunks.
void write_foreign_file(const std::filesystem::path& path) {
  const Hdf5Writer starts_the_library;
  const hid_t file = H5Fcreate(path.c_str(), H5F_ACC_TRUNC, H5P_DEFAULT, H5P_DEFAULT);
  ASSERT_GE(file, 0);
  const hid_t scalar = H5Screate(H5S_SCALAR);
  const hsize_t four = 4;
  const hid_t vector = H5Screate_simple(1, &four, nullptr);

  const auto attribute = [&](const char* name, hid_t stored, hid_t given, const void* value) {
    const hid_t id = H5Acreate2(file, name, stored, scalar, H5P_DEFAULT, H5P_DEFAULT);
    ASSERT_GE(id, 0);
    ASSERT_GE(H5Awrite(id, given, value), 0);
    H5Aclose(id);
  };
  const int32_t count = -7;
  const float rate = 0.5F;
  attribute("count", H5T_STD_I32LE, H5T_NATIVE_INT, &count);
  attribute("rate", H5T_IEEE_F32LE, H5T_NATIVE_FLOAT, &rate);
  const hid_t fixed = H5Tcopy(H5T_C_S1);
  H5Tset_size(fixed, 8);
  const std::array<char, 8> hello{"hello"};
  attribute("fixed", fixed, fixed, hello.data());
  H5Tset_strpad(fixed, H5T_STR_SPACEPAD);
  attribute("spaces", fixed, fixed, "hi there");
  const hid_t variable = H5Tcopy(H5T_C_S1);
  H5Tset_size(variable, H5T_VARIABLE);
  const char* words = "variable";
  attribute("ascii", variable, variable, &words);

  const auto dataset = [&](const char* name, hid_t stored, hid_t given, const void* values, hid_t properties) {
    const hid_t id = H5Dcreate2(file, name, stored, vector, H5P_DEFAULT, properties, H5P_DEFAULT);
    ASSERT_GE(id, 0);
    ASSERT_GE(H5Dwrite(id, given, H5S_ALL, H5S_ALL, H5P_DEFAULT, values), 0);
    H5Dclose(id);
  };
  const int32_t integers[4] = {1, -2, 3, 40000};
  const uint32_t large[4] = {0, 1, 2, 4000000000U};
  dataset("i16", H5T_STD_I16BE, H5T_NATIVE_INT, integers, H5P_DEFAULT);
  dataset("u32", H5T_STD_U32LE, H5T_NATIVE_UINT, large, H5P_DEFAULT);
  const hid_t chunks = H5Pcreate(H5P_DATASET_CREATE);
  H5Pset_chunk(chunks, 1, &four);
  dataset("chunked", H5T_STD_I32LE, H5T_NATIVE_INT, integers, chunks);
  const hid_t boolean = H5Tenum_create(H5T_STD_I8LE);
  const int8_t no = 0;
  const int8_t yes = 1;
  H5Tenum_insert(boolean, "FALSE", &no);
  H5Tenum_insert(boolean, "TRUE", &yes);
  const int8_t flags[4] = {1, 0, 0, 1};
  dataset("flags", boolean, boolean, flags, H5P_DEFAULT);
  for (const hid_t type : {fixed, variable, boolean}) H5Tclose(type);
  H5Pclose(chunks);
  H5Sclose(scalar);
  H5Sclose(vector);
  ASSERT_GE(H5Fclose(file), 0);
}

TEST(Hdf5, RoundTripOfEveryTypeInMemory) {
  Hdf5Writer writer;
  writer.put("f64", Tensor::from<double>({1.5, -2}, {2}));
  writer.put("blocks/0.attention.wq", Tensor::from<float>({1, 2, 3, 4, 5, 6}, {2, 3}));
  writer.put("blocks/i64", Tensor::from<int64_t>({int64_t{1} << 40}, {}));
  writer.put("i32", Tensor::from<int32_t>({-1, 2}, {1, 2, 1}));
  writer.put("u16", Tensor::from<uint16_t>({65535}, {1}));
  writer.put("i8", Tensor::from<int8_t>({-128}, {1}));
  writer.put("u8", Tensor::from<uint8_t>({255}, {1}));
  writer.put("bf16", Tensor::from<bfloat16>({bfloat16(1.5F)}, {1}));
  writer.put("f8", Tensor::from<float8>({float8(-0.875), float8(448)}, {2}));
  writer.put("empty", Tensor::empty({0, 3}, DType::f32));
  writer.put_text("text", "lines\nand \xC3\xA9");
  writer.put_texts("names", {"a", "", "long name"});
  writer.put_texts("no_names", {});
  writer.set_attribute("/", "version", 3);
  writer.set_attribute("/", "version", 4);
  writer.set_attribute("some/group", "kind", "x");
  const Hdf5Reader reader = Hdf5Reader::open_image(writer.finish(), "image");

  EXPECT_EQ(reader.get("f64").to_vector<double>(), (std::vector<double>{1.5, -2}));
  const Tensor wq = reader.get("blocks/0.attention.wq");
  EXPECT_EQ(wq.shape(), (Shape{2, 3}));
  EXPECT_EQ(wq.to_vector<float>(), (std::vector<float>{1, 2, 3, 4, 5, 6}));
  EXPECT_EQ(reader.get("blocks/i64").rank(), 0);
  EXPECT_EQ(reader.get("blocks/i64").to_vector<int64_t>()[0], int64_t{1} << 40);
  EXPECT_EQ(reader.get("i32").shape(), (Shape{1, 2, 1}));
  EXPECT_EQ(reader.get("u16").to_vector<uint16_t>()[0], 65535);
  EXPECT_EQ(reader.get("i8").to_vector<int8_t>()[0], -128);
  EXPECT_EQ(reader.get("u8").to_vector<uint8_t>()[0], 255);
  EXPECT_EQ(reader.info("bf16").dtype, DType::bf16);
  EXPECT_EQ(static_cast<float>(reader.get("bf16").to_vector<bfloat16>()[0]), 1.5F);
  EXPECT_EQ(reader.info("f8").dtype, DType::f8);
  EXPECT_EQ(static_cast<float>(reader.get("f8").to_vector<float8>()[0]), -0.875F);
  EXPECT_EQ(static_cast<float>(reader.get("f8").to_vector<float8>()[1]), 448.0F);
  EXPECT_EQ(reader.get("empty").shape(), (Shape{0, 3}));
  EXPECT_EQ(reader.get_text("text"), "lines\nand \xC3\xA9");
  EXPECT_EQ(reader.get_texts("names"), (std::vector<std::string>{"a", "", "long name"}));
  EXPECT_TRUE(reader.get_texts("no_names").empty());
  EXPECT_EQ(reader.attribute_int("/", "version"), 4);
  EXPECT_EQ(reader.attribute_text("some/group", "kind"), "x");
  EXPECT_EQ(reader.list("blocks"), (std::vector<std::string>{"0.attention.wq", "i64"}));
  EXPECT_TRUE(reader.has("blocks/i64"));
  EXPECT_FALSE(reader.has("blocks/none"));
  EXPECT_FALSE(reader.has("none/i64"));
  EXPECT_TRUE(reader.has_attribute("some/group", "kind"));
  EXPECT_FALSE(reader.has_attribute("some/group", "none"));
}

TEST(Hdf5, EqualContentGivesEqualBytes) {
  const auto build = [] {
    Hdf5Writer writer;
    writer.put("x", Tensor::from<float>({1, 2}, {2}));
    writer.put_text("t", "text");
    return writer.finish();
  };
  EXPECT_EQ(build(), build());
}

TEST(Hdf5, StreamsToDiskAndSaysWhereTheDataLies) {
  const TemporaryDirectory folder;
  constexpr int64_t kCount = 1'300'000;  // several pieces, the last one short
  uint16_t next = 0;
  {
    Hdf5Writer writer(folder / "x.h5");
    writer.put_stream("group/tokens", DType::u16, kCount, [&](std::span<std::byte> piece) {
      for (size_t i = 0; i < piece.size(); i += 2, ++next) std::memcpy(&piece[i], &next, 2);
    });
    writer.close();
  }
  const Hdf5Reader reader = Hdf5Reader::open_file(folder / "x.h5");
  const auto offset = static_cast<size_t>(reader.contiguous_offset("group/tokens"));
  const std::vector<std::byte> bytes = read_file(folder / "x.h5");
  ASSERT_LE(offset + 2 * kCount, bytes.size());
  const std::vector<uint16_t> values = reader.get("group/tokens").to_vector<uint16_t>();
  ASSERT_EQ(values.size(), static_cast<size_t>(kCount));
  for (size_t i = 0; i < values.size(); ++i) ASSERT_EQ(values[i], static_cast<uint16_t>(i));
  EXPECT_EQ(std::memcmp(&bytes[offset], values.data(), 2 * kCount), 0);
}

TEST(Hdf5, ReadsWhatOtherProgramsWrite) {
  const TemporaryDirectory folder;
  write_foreign_file(folder / "x.h5");
  const Hdf5Reader reader = Hdf5Reader::open_file(folder / "x.h5");
  EXPECT_EQ(reader.attributes("/"), (std::vector<std::string>{"ascii", "count", "fixed", "rate", "spaces"}));
  EXPECT_EQ(reader.attribute_int("/", "count"), -7);
  EXPECT_EQ(reader.attribute_double("/", "count"), -7.0);
  EXPECT_EQ(reader.attribute_double("/", "rate"), 0.5);
  EXPECT_EQ(reader.attribute_text("/", "fixed"), "hello");
  EXPECT_EQ(reader.attribute_text("/", "spaces"), "hi there");
  EXPECT_EQ(reader.attribute_text("/", "ascii"), "variable");
  EXPECT_TRUE(reader.attribute_is_text("/", "fixed"));
  EXPECT_FALSE(reader.attribute_is_text("/", "count"));
  EXPECT_EQ(reader.get("i16").to_vector<int32_t>(), (std::vector<int32_t>{1, -2, 3, 32767}));
  EXPECT_EQ(reader.get("u32").to_vector<int64_t>(), (std::vector<int64_t>{0, 1, 2, 4000000000}));
  EXPECT_EQ(reader.get("chunked").to_vector<int32_t>(), (std::vector<int32_t>{1, -2, 3, 40000}));
  EXPECT_EQ(reader.get("flags").to_vector<int8_t>(), (std::vector<int8_t>{1, 0, 0, 1}));
  EXPECT_ERROR(reader.contiguous_offset("chunked"), ErrorKind::data, "chunked is not stored in one piece");
}

TEST(Hdf5, ErrorsNameFileAndObjectAndHaveTheExpectedKind) {
  Hdf5Writer writer;
  writer.put("x", Tensor::from<float>({1}, {1}));
  writer.set_attribute("/", "rate", "fast");
  const std::vector<std::byte> image = writer.finish();
  EXPECT_ERROR(writer.put_text("late", "x"), ErrorKind::internal, "late is added to a finished file");
  const Hdf5Reader reader = Hdf5Reader::open_image(image, "step-5/model.h5", ErrorKind::checkpoint);
  EXPECT_ERROR(reader.get("y"), ErrorKind::checkpoint, "step-5/model.h5: cannot open dataset y");
  EXPECT_ERROR(reader.get_text("x"), ErrorKind::checkpoint, "x is not text");
  EXPECT_ERROR(reader.attribute_int("/", "rate"), ErrorKind::checkpoint, "attribute rate of / is not an integer");
  EXPECT_ERROR(reader.attribute_int("/", "none"), ErrorKind::checkpoint, "attribute none of /");
  EXPECT_ERROR(reader.list("none"), ErrorKind::checkpoint, "none");
  EXPECT_ERROR(Hdf5Reader::open_image(std::vector<std::byte>(1000), "zeros"), ErrorKind::data, "zeros: cannot open");
  EXPECT_ERROR(Hdf5Reader::open_file("/no/such/file.h5"), ErrorKind::data, "No such file or directory");
  EXPECT_ERROR(Hdf5Writer("/no/such/file.h5"), ErrorKind::disk, "No such file or directory");
}

TEST(Hdf5, SeveralImagesAreOpenAtOnceAndOnManyThreads) {
  std::vector<std::thread> threads;
  for (int32_t i = 0; i < 4; ++i) {
    threads.emplace_back([i] {
      for (int round = 0; round < 20; ++round) {
        Hdf5Writer writer;
        writer.put("x", Tensor::from<int32_t>({i}, {1}));
        const Hdf5Reader reader = Hdf5Reader::open_image(writer.finish(), "image");
        EXPECT_EQ(reader.get("x").to_vector<int32_t>()[0], i);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(Hdf5, FullDiskIsAnErrorWithTheReason) {
  const SmallDisk disk(256);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small tmpfs is not permitted here";
  const auto write = [&] {
    Hdf5Writer writer(disk.path() / "x.h5");
    writer.put_stream("tokens", DType::u8, 4'000'000, [](std::span<std::byte> piece) {
      for (std::byte& value : piece) value = std::byte{1};
    });
    writer.close();
  };
  EXPECT_ERROR(write(), ErrorKind::disk, "x.h5: cannot write tokens: No space left on device");
}

}  // namespace
}  // namespace quire
