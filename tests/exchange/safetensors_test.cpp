// Reads and writes safetensors files. What is accepted and refused follows the reference implementation, version 0.8.0;
// keys that occur twice are refused here in addition.
#include "trainers/exchange/safetensors.h"

#include <fmt/format.h>

#include <cmath>
#include <cstring>

#include "core/bfloat16.h"
#include "tests/exchange/exchange_folder.h"
#include "tests/support/expect_error.h"
#include "trainers/exchange/model_files.h"
#include "trainers/exchange/safetensors_writer.h"
#include "trainers/exchange/tensor_cut.h"

namespace quire::test {
namespace {

std::string file_of(const std::string& header, const std::string& data) {
  const uint64_t length = header.size();
  std::string bytes(reinterpret_cast<const char*>(&length), sizeof(length));
  return bytes + header + data;
}

class SafetensorsTest : public ::testing::Test {
 protected:
  SafetensorsFile open(const std::string& bytes) {
    write_all(path_, bytes);
    return SafetensorsFile(path_);
  }
  void expect_accepted(const std::string& header, const std::string& data) {
    EXPECT_NO_THROW(open(file_of(header, data))) << header;
  }
  void expect_refused(const std::string& header, const std::string& data, const std::string& message) {
    EXPECT_ERROR(open(file_of(header, data)), ErrorKind::data, message);
  }

  TemporaryDirectory folder_;
  std::filesystem::path path_ = folder_ / "model.safetensors";
};

TEST_F(SafetensorsTest, TensorsAreFoundByName) {
  const SafetensorsFile file =
      open(file_of(R"({"b":{"dtype":"F32","shape":[1,2],"data_offsets":[2,10]},"__metadata__":{"format":"pt"},)"
                   R"("a":{"data_offsets":[0,2],"shape":[2],"dtype":"U8","more":{"x":[1.5,null]}}})",
                   "\x01\x02" + std::string(8, '\0')));
  ASSERT_EQ(file.tensors().size(), 2U);
  EXPECT_EQ(file.metadata().at("format"), "pt");
  ASSERT_NE(file.find("a"), nullptr);
  EXPECT_EQ(file.bytes(*file.find("a"))[1], std::byte{2});
  EXPECT_EQ(file.find("b")->shape, (std::vector<int64_t>{1, 2}));
  EXPECT_EQ(file.find("c"), nullptr);
}

TEST_F(SafetensorsTest, WhatTheReferenceAcceptsIsAccepted) {
  expect_accepted("{}", "");
  expect_accepted("  {}\n\t ", "");
  expect_accepted(R"({"":{"dtype":"F64","shape":[],"data_offsets":[0,8]}})", std::string(8, 'x'));
  expect_accepted(R"({"../a\u0000":{"dtype":"I16","shape":[0,7],"data_offsets":[0,0]}})", "");
  expect_accepted(R"({"__metadata__":{},"a":{"dtype":"BOOL","shape":[3],"data_offsets":[0,3]}})", "abc");
}

TEST_F(SafetensorsTest, WhatDoesNotCoverTheDataIsRefused) {
  const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  expect_refused("{" + a + "}", "abc", "ends at byte 4 of 3");
  expect_refused("{" + a + "}", "abcde", "has 4 bytes of tensors but 5");
  expect_refused("{" + a + R"(,"b":{"dtype":"U8","shape":[2],"data_offsets":[5,7]}})", "abcdefg", "must leave no gap");
  expect_refused("{" + a + R"(,"b":{"dtype":"U8","shape":[3],"data_offsets":[3,6]}})", "abcdef", "must not overlap");
  expect_refused("{" + a + R"(,"b":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})", "abcd", "must not overlap");
  expect_refused(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[4,0]}})", "abcd", "do not fit");
  expect_refused(R"({"a":{"dtype":"F32","shape":[4],"data_offsets":[0,4]}})", "abcd", "do not fit");
  expect_refused(R"({"a":{"dtype":"F32","shape":[9223372036854775807,3],"data_offsets":[0,4]}})", "abcd",
                 "does not fit 64 bits");
  expect_refused(R"({"a":{"dtype":"U8","shape":[18446744073709551615],"data_offsets":[0,4]}})", "abcd", "too large");
}

TEST_F(SafetensorsTest, HeadersThatAreNoneAreRefused) {
  expect_refused("", "", "not JSON");
  expect_refused("[]", "", "not an object");
  expect_refused("{} x", "", "not JSON");
  expect_refused(std::string("{}\0\0", 4), "", "NUL");
  expect_refused("\xEF\xBB\xBF{}", "", "byte order mark");
  expect_refused("{\"\xff\":1}", "", "not JSON");
  expect_refused(R"({"a":1})", "", "stands in place");
  expect_refused(R"({"__metadata__":{"a":1}})", "", "its values are texts");
  expect_refused(R"({"__metadata__":{"a":"1","a":"2"}})", "", "occurs twice");
  expect_refused(
      R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0,1]},"a":{"dtype":"U8","shape":[1],"data_offsets":[1,2]}})",
      "ab", "occurs twice");
  expect_refused(R"({"a":{"dtype":"U8","dtype":"U8","shape":[1],"data_offsets":[0,1]}})", "a", "occurs twice");
  expect_refused(R"({"a":{"dtype":"f32","shape":[1],"data_offsets":[0,4]}})", "abcd", "the type f32 is unknown");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1.0],"data_offsets":[0,1]}})", "a", "cannot be");
  expect_refused(R"({"a":{"dtype":"U8","shape":[-1],"data_offsets":[0,1]}})", "a", "cannot be");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1],"data_offsets":[0]}})", "a", "has 1 numbers");
  expect_refused(R"({"a":{"dtype":"U8","shape":[1]}})", "a", "has no data_offsets");
  expect_refused(R"({"a":{"x":)" + std::string(40, '[') + std::string(40, ']') + "}}", "", "deep");
}

TEST_F(SafetensorsTest, LengthsOfHeadersThatCannotBeAreRefused) {
  EXPECT_ERROR(open("abc"), ErrorKind::data, "begins with eight");
  EXPECT_ERROR(open(std::string(8, '\xff')), ErrorKind::data, "at most 100000000");
  EXPECT_ERROR(open(std::string("\x10\0\0\0\0\0\0\0{}", 10)), ErrorKind::data, "cut off or damaged");
}

TEST_F(SafetensorsTest, TwoHundredThousandTensorsAreRead) {
  std::string header = "{";
  for (int i = 0; i < 200'000; ++i) {
    header += fmt::format(R"({}"layer.{}":{{"dtype":"F16","shape":[1],"data_offsets":[{},{}]}})", i == 0 ? "" : ",", i,
                          2 * i, 2 * i + 2);
  }
  EXPECT_EQ(open(file_of(header + "}", std::string(400'000, 'x'))).tensors().size(), 200'000U);
}

TEST_F(SafetensorsTest, WhatIsWrittenIsReadAgain) {
  const std::vector<PlannedTensor> planned = in_file_order(
      {{"half", StoredType::f16, {3}}, {"wide", StoredType::f64, {1, 2}}, {"empty", StoredType::f32, {0}}});
  EXPECT_EQ(planned.front().name, "wide");
  SafetensorsWriter writer(path_, planned, {{"maker", "quire"}});
  std::string data(22, 'x');
  writer.write("half", 0, std::as_bytes(std::span(data).first(6)));
  writer.write("wide", 8, std::as_bytes(std::span(data).first(8)));
  writer.write("wide", 0, std::as_bytes(std::span(data).first(8)));
  EXPECT_FALSE(std::filesystem::exists(path_));
  writer.finish();
  const SafetensorsFile file(path_);
  EXPECT_EQ(file.metadata(), (std::map<std::string, std::string>{{"format", "pt"}, {"maker", "quire"}}));
  EXPECT_EQ(file.find("wide")->begin, 0);
  EXPECT_EQ(file.find("half")->end, 22);
  uint64_t length = 0;
  std::memcpy(&length, read_all(path_).data(), sizeof(length));
  EXPECT_EQ(length % 8, 0U);
}

TEST_F(SafetensorsTest, AnUnfinishedFileDisappears) {
  {
    const std::vector<PlannedTensor> planned{{"a", StoredType::u8, {1}}};
    const SafetensorsWriter writer(path_, planned);
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder_.path()));
}

TEST(Half, EveryHalfIsAFloatAndBack) {
  for (uint32_t bits = 0; bits < 0x10000; ++bits) {
    const float value = float_of_half(static_cast<uint16_t>(bits));
    if (value != value) continue;
    EXPECT_EQ(half_of(value), bits);
  }
  EXPECT_EQ(float_of_half(half_of(65519.0F)), 65504.0F);
  EXPECT_EQ(float_of_half(half_of(65520.0F)), INFINITY);
  EXPECT_EQ(float_of_half(half_of(0x1.002p0F)), 1.0F);  // a tie goes to the even one
  EXPECT_EQ(float_of_half(half_of(0x1p-25F)), 0.0F);    // as below the normal numbers
  EXPECT_EQ(float_of_half(half_of(0x1.8p-24F)), 0x1p-23F);
}

TEST(TensorCut, PartsAlternateByHeadOrFollowEachOther) {
  std::vector<float> stored(24);
  for (size_t i = 0; i < stored.size(); ++i) stored[i] = static_cast<float>(i);
  const auto bytes = std::as_bytes(std::span(stored));
  std::vector<float> keys(8);
  // Rows (2 heads, 3 parts, 2 rows), 2 columns: the keys of head 1 are rows 8 and 9.
  ASSERT_TRUE(read_cut({.part = 1, .parts = 3, .head_rows = 2}, {4, 2}, StoredType::f32, bytes, 0, std::span(keys)));
  EXPECT_EQ(keys, (std::vector<float>{4, 5, 6, 7, 16, 17, 18, 19}));
  // [2, 12] transposed: the keys are columns 4 to 7.
  ASSERT_TRUE(
      read_cut({.part = 1, .parts = 3, .transposed = true}, {4, 2}, StoredType::f32, bytes, 0, std::span(keys)));
  EXPECT_EQ(keys, (std::vector<float>{4, 16, 5, 17, 6, 18, 7, 19}));
  std::vector<float> piece(3);
  ASSERT_TRUE(
      read_cut({.part = 1, .parts = 3, .transposed = true}, {4, 2}, StoredType::f32, bytes, 3, std::span(piece)));
  EXPECT_EQ(piece, (std::vector<float>{17, 6, 18}));
}

TEST(TensorCut, AValueThatDoesNotFitIsFound) {
  const std::vector<double> stored{1e300};
  std::vector<float> out(1);
  EXPECT_FALSE(read_cut({}, {1}, StoredType::f64, std::as_bytes(std::span(stored)), 0, std::span(out)));
}

class ShardsTest : public ::testing::Test {
 protected:
  static std::string with(const char* name) {
    return file_of(fmt::format(R"({{"{}":{{"dtype":"U8","shape":[1],"data_offsets":[0,1]}}}})", name), "x");
  }
  void index(const std::string& map) {
    write_all(folder_ / "model.safetensors.index.json", R"({"metadata":{"total_size":2},"weight_map":)" + map + "}");
  }
  void SetUp() override {
    write_all(folder_ / "one.safetensors", with("a"));
    write_all(folder_ / "two.safetensors", with("b"));
  }
  TemporaryDirectory folder_;
};

TEST_F(ShardsTest, EachTensorComesFromItsFile) {
  index(R"({"a":"one.safetensors","b":"two.safetensors"})");
  const ModelFiles files = ModelFiles::open(folder_.path());
  EXPECT_EQ(files.find("b")->file->path().filename(), "two.safetensors");
}

TEST_F(ShardsTest, IndexesThatContradictTheFilesAreRefused) {
  for (const auto& [map, message] : std::vector<std::pair<std::string, std::string>>{
           {R"({"a":"one.safetensors","b":"one.safetensors"})", "has no tensor b"},
           {R"({"a":"two.safetensors","b":"two.safetensors"})", "has no tensor a"},
           {R"({"a":"one.safetensors","c":"two.safetensors"})", "does not name it"},
           {R"({"a":"one.safetensors","b":"three.safetensors"})", "is not there"},
           {R"({"a":"../one.safetensors"})", "no plain file name"},
           {R"({"a":"one.safetensors","a":"one.safetensors"})", "occurs twice"},
           {R"({"a":3})", "no plain file name"},
           {R"([])", "has no weight_map"}}) {
    index(map);
    EXPECT_ERROR(ModelFiles::open(folder_.path()), ErrorKind::data, message);
  }
  index(R"({"a":"one.safetensors"})");
  write_all(folder_ / "model.safetensors", with("a"));
  EXPECT_ERROR(ModelFiles::open(folder_.path()), ErrorKind::data, "does not name it; remove one");
}

TEST_F(ShardsTest, AFolderWithoutSafetensorsSaysWhatIsThere) {
  EXPECT_ERROR(ModelFiles::open(folder_.path()), ErrorKind::data, "give a folder in Hugging Face layout");
  write_all(folder_ / "pytorch_model.bin", "x");
  EXPECT_ERROR(ModelFiles::open(folder_.path()), ErrorKind::data, "only safetensors are read");
}

}  // namespace
}  // namespace quire::test
