#include "core/json.h"

#include <gtest/gtest.h>

namespace quire {
namespace {

std::string nested(int depth, const std::string& open, const std::string& close) {
  std::string text;
  for (int i = 0; i < depth; ++i) text += open;
  text += "1";
  for (int i = 0; i < depth; ++i) text += close;
  return text;
}

TEST(Json, DepthHasALimit) {
  for (const auto& [open, close] : {std::pair<std::string, std::string>{"[", "]"}, {"{\"a\":", "}"}}) {
    EXPECT_FALSE(parse_json(nested(kDeepestJson, open, close)).is_discarded());
    std::string reason;
    EXPECT_TRUE(parse_json(nested(kDeepestJson + 1, open, close), &reason).is_discarded());
    EXPECT_EQ(reason, "it is nested more than 256 deep");
    EXPECT_TRUE(parse_json<nlohmann::ordered_json>(nested(1'000'000, open, close)).is_discarded());
    EXPECT_TRUE(parse_json(nested(1'000'000, open, "")).is_discarded());
  }
  // Brackets side by side, and brackets in strings.
  EXPECT_TRUE(parse_json("[" + nested(1, "[", "]") + std::string(0, ' ') + ",[]]").is_array());
  const std::string brackets(1000, '[');
  EXPECT_EQ(parse_json("{\"a\": \"\\\\\\\"" + brackets + "\"}").at("a"), "\\\"" + brackets);
}

TEST(Json, WhatIsNoneIsDiscardedWithAReason) {
  for (const char* text : {"", "{", "{\"a\": 1}}", "{\"a\": NaN}", "\"\\ud834\"", "[1e999]", "\"\xFF\""}) {
    std::string reason;
    EXPECT_TRUE(parse_json(text, &reason).is_discarded()) << text;
    EXPECT_NE(reason, "") << text;
    EXPECT_THROW(parse_json(text).at("a"), nlohmann::json::exception);
  }
}

TEST(Json, IntegersAreWholeAndWithinTheirRange) {
  const nlohmann::json json = parse_json(
      R"({"a": [7, -1, 0, 9007199254740992], "b": [true, 1.0, 1e3, "1", null, [], {}, 9007199254740993,
          18446744073709551615, -9223372036854775808]})");
  EXPECT_EQ(json_integer(json.at("a").at(0)), 7);
  EXPECT_EQ(json_integer(json.at("a").at(1), -1), -1);
  EXPECT_EQ(json_integer(json.at("a").at(3)), kLargestJsonInteger);
  EXPECT_THROW(json_integer(json.at("a").at(1)), nlohmann::json::exception);
  EXPECT_THROW(json_integer(json.at("a").at(2), 1), nlohmann::json::exception);
  for (const nlohmann::json& value : json.at("b")) {
    EXPECT_THROW(json_integer(value), nlohmann::json::exception) << value.dump();
  }
}

}  // namespace
}  // namespace quire
