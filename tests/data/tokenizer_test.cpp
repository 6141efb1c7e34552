#include "data/tokenizers/make_tokenizer.h"

#include <gtest/gtest.h>

#include "tests/support/expect_error.h"

namespace quire {
namespace {

TEST(ByteTokenizer, EveryByteComesBack) {
  const auto tokenizer = parse_tokenizer_option("byte");
  std::string text;
  for (int i = 0; i < 256; ++i) text += static_cast<char>(i);
  std::vector<int32_t> ids{7};
  tokenizer->encode(text, ids);
  ASSERT_EQ(ids.size(), 257U);  // appended
  EXPECT_EQ(ids[256], 255);
  EXPECT_EQ(tokenizer->decode(std::span(ids).subspan(1)), text);
}

TEST(ByteTokenizer, SpecialTokensHaveNoTextAndOthersAreRefused) {
  const auto tokenizer = parse_tokenizer_option("byte");
  EXPECT_EQ(tokenizer->vocabulary_size(), 258);
  EXPECT_EQ(tokenizer->bos_id(), 256);
  EXPECT_EQ(tokenizer->eos_id(), 257);
  const std::vector<int32_t> ids{256, 'h', 'i', 257};
  EXPECT_EQ(tokenizer->decode(ids), "hi");
  EXPECT_ERROR(tokenizer->decode(std::vector<int32_t>{258}), ErrorKind::data, "no token has id 258");
  EXPECT_ERROR(tokenizer->decode(std::vector<int32_t>{-1}), ErrorKind::data, "no token has id -1");
}

TEST(Tokenizer, IsRebuiltFromItsText) {
  const auto tokenizer = make_tokenizer(parse_tokenizer_option("byte")->serialise(), "x", ErrorKind::data);
  EXPECT_EQ(tokenizer->kind(), "byte");
  EXPECT_ERROR(make_tokenizer("byte\nmore", "x.h5", ErrorKind::data), ErrorKind::data, "x.h5: byte tokenizer");
}

TEST(Tokenizer, UnknownKindsNameTheKnownOnes) {
  EXPECT_ERROR(parse_tokenizer_option("bite"), ErrorKind::config, "unknown tokenizer \"bite\"; there is: byte");
  EXPECT_ERROR(parse_tokenizer_option(""), ErrorKind::config, "there is: byte");
  EXPECT_ERROR(parse_tokenizer_option("byte:x"), ErrorKind::config, "takes no argument");
  EXPECT_ERROR(make_tokenizer("bite\n", "x.h5", ErrorKind::data), ErrorKind::data,
               "x.h5: unknown tokenizer \"bite\"; there is: byte, ids, hf, bpe, tiktoken, spm");
  EXPECT_ERROR(make_tokenizer("bite\n", "step-1", ErrorKind::checkpoint), ErrorKind::checkpoint, "step-1: unknown");
}

}  // namespace
}  // namespace quire
