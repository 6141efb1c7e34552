// Tests durations, keys that have no meaning beside others, and the descriptions of an enum's values.
#include <gtest/gtest.h>

#include <fstream>

#include "core/config/config.h"
#include "core/error.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

enum class Shape2 { line, circle };

}  // namespace

template <>
struct EnumNames<Shape2> {
  static constexpr auto value =
      std::to_array<std::pair<Shape2, std::string_view>>({{Shape2::line, "line"}, {Shape2::circle, "circle"}});
  static constexpr auto help = std::to_array<std::string_view>({"straight", "round"});
};

namespace {

struct Drawing {
  Shape2 shape = Shape2::line;
  double radius = 2;
  std::optional<Duration> limit;
  std::vector<Shape2> others;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("shape", shape, {.help = "what is drawn", .resumable = true});
    v.field("radius", radius,
            {.help = "of a circle", .inapplicable = shape == Shape2::circle ? "" : "only a circle has one"});
    v.field("limit", limit, {.help = "how long it may take", .min = 1});
    v.field("others", others, {.help = "beside it"});
  }
};

Drawing drawing(const std::string& text, const std::vector<std::string>& overrides = {}) {
  return parse_config<Drawing>(text, "d.yaml", overrides);
}

std::string error_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  try {
    drawing(text, overrides);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::config);
    return error.what();
  }
  return "no error";
}

TEST(ConfigApplicable, AKeyThatMeansNothingIsRefusedWhereItStands) {
  EXPECT_EQ(drawing("{shape: circle, radius: 3}").radius, 3);
  EXPECT_EQ(drawing("{radius: 3, shape: circle}").radius, 3);
  EXPECT_EQ(error_of("{radius: 3}"), "d.yaml:1:2: radius: means nothing here: only a circle has one; leave it out");
  EXPECT_EQ(error_of("{shape: circle, radius: 3}", {"shape=line"}),
            "d.yaml:1:17: radius: means nothing here: only a circle has one; leave it out");
}

TEST(ConfigApplicable, AKeyWithTheValueItHasAnywayIsNoChoice) {
  EXPECT_EQ(drawing("{radius: 2}").radius, 2);
  EXPECT_EQ(drawing("{radius: 2.0, shape: line}").radius, 2);
  EXPECT_EQ(drawing("{shape: circle, radius: 2}", {"shape=line"}).radius, 2);
  EXPECT_NE(error_of("{radius: wide}").find("expects a number"), std::string::npos);
}

// A configuration that quire wrote has every key; none of them is a choice that an override contradicts.
TEST(ConfigApplicable, ASavedConfigurationGivesWay) {
  const test::TemporaryDirectory folder;
  const std::string path = (folder / "saved.yaml").string();
  const std::string saved = dump_saved_config(drawing("{shape: circle, radius: 3}"));
  std::ofstream(path) << saved;
  EXPECT_EQ(load_config<Drawing>(path).radius, 3);
  EXPECT_EQ(load_config<Drawing>(path, {"shape=line"}).radius, 2);
  std::ofstream(path) << dump_config(drawing("{shape: circle, radius: 3}"));
  EXPECT_THROW(load_config<Drawing>(path, {"shape=line"}), Error);
}

TEST(ConfigApplicable, IsNotWrittenAndMayGoWithAnOverride) {
  EXPECT_EQ(dump_config(drawing("{}")), "shape: line\nlimit: none\nothers: []\n");
  const Drawing circle = drawing("{shape: circle, radius: 3}");
  EXPECT_EQ(dump_config(circle), "shape: circle\nradius: 3\nlimit: none\nothers: []\n");
  EXPECT_EQ(dump_config_minimal(drawing("{shape: circle}")), "shape: circle\n");
  const Drawing line = with_overrides(circle, {"shape=line"});
  EXPECT_EQ(line.radius, 2);
  EXPECT_THROW(with_overrides(circle, {"shape=line", "radius=4"}), Error);
  const auto differences = diff_configs(circle, line);
  ASSERT_EQ(differences.size(), 2U);  // the shape, and the radius that went back
}

TEST(ConfigApplicable, Durations) {
  const std::pair<const char*, int64_t> good[] = {{"90", 90},      {"90s", 90},   {"3h30m", 12600}, {"1d", 86400},
                                                  {"1d1s", 86401}, {"2m5s", 125}, {"100m", 6000},   {"1h", 3600}};
  for (const auto& [text, seconds] : good) {
    const Drawing read = drawing(std::string("{limit: ") + text + "}");
    ASSERT_TRUE(read.limit.has_value());
    EXPECT_EQ(read.limit->seconds, seconds) << text;
    EXPECT_EQ(drawing(dump_config(read)).limit, read.limit) << text;
  }
  EXPECT_EQ(write_value(Duration{12600}).text, "3h30m");
  EXPECT_EQ(write_value(Duration{3601}).text, "1h1s");
  EXPECT_FALSE(drawing("{limit: none}").limit.has_value());
  for (const char* text :
       {"3x", "h", "3h30", "30m3h", "1h1h", "-5", "1.5h", "''", "[1]", "9999999999999999999h", "3 h"}) {
    EXPECT_NE(error_of(std::string("{limit: ") + text + "}").find("expects a duration such as 3h30m"),
              std::string::npos)
        << text << ": " << error_of(std::string("{limit: ") + text + "}");
  }
  EXPECT_EQ(error_of("{limit: 0}"), "d.yaml:1:9: limit: must be at least 1, got 0");
}

TEST(ConfigApplicable, ValuesOfAChoiceSayWhatTheyMean) {
  const std::vector<ConfigKey> keys = list_config_keys<Drawing>();
  ASSERT_EQ(keys.size(), 4U);  // the radius, too: which keys there are does not depend on values
  ASSERT_EQ(keys[0].choices.size(), 2U);
  EXPECT_EQ(keys[3].choices.size(), 2U);
  EXPECT_EQ(format_config_keys({keys[0]}),
            "shape: line | circle, default line, may change on --resume\n    what is drawn\n"
            "      line: straight\n      circle: round\n");
}

}  // namespace
}  // namespace quire
