// The page of a trace keeps to its size, and says what it leaves out.
#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "tests/support/expect_error.h"
#include "trainers/trace/trace_output.h"

namespace quire::test {
namespace {

// Two heads of one layer read four spans each for every token; the weights are 0.4, 0.2, 0.1 and 0.05.
Trace example(int32_t tokens) {
  Trace trace;
  trace.length = tokens;
  trace.layers.push_back({.name = "layer", .heads = 2, .strongest = {}});
  for (int32_t token = 0; token < tokens; ++token) {
    trace.tokens.push_back({.id = 'a', .text = "<a>", .nll = 1.5, .nll_without_state = 2.5});
    trace.tokens.back().first_read = static_cast<int64_t>(trace.reads.size());
    trace.tokens.back().reads = 2;
    for (int32_t head = 0; head < 2; ++head) {
      trace.reads.push_back({token, 0, head, 0.25F, 0, 4, static_cast<int64_t>(trace.spans.size())});
      float weight = 0.4F;
      for (int32_t span = 0; span < 4; ++span, weight /= 2) trace.spans.push_back({span, span + 1, weight});
    }
  }
  return trace;
}

nlohmann::json data_of(const std::string& page) {
  const std::string begin = "id=\"data\">";
  const size_t at = page.find(begin) + begin.size();
  return nlohmann::json::parse(page.substr(at, page.find("</script>", at) - at));
}

TEST(TracePage, HoldsEverythingThatFits) {
  const std::string page = to_html(example(3), "a & b");
  EXPECT_TRUE(page.starts_with(kTracePageMark));
  const nlohmann::json data = data_of(page);
  EXPECT_EQ(data["title"], "a & b");
  EXPECT_EQ(data["text"], nlohmann::json({"<a>", "<a>", "<a>"}));
  EXPECT_EQ(data["nll"], nlohmann::json({1.5, 1.5, 1.5}));
  EXPECT_EQ(data["without"][2], 2.5);
  const nlohmann::json head0({0, 0, 2500, 4, 2, 1, 4000, 1, 1, 2000, 0, 1, 1000, -1, 1, 500});
  for (size_t i = 0; i < head0.size(); ++i) EXPECT_EQ(data["reads"][2][i], head0[i]) << i;
  EXPECT_NE(data["about"].get<std::string>().find("leaves out 0.00 %"), std::string::npos) << data["about"];
}

TEST(TracePage, KeepsTheStrongestSpansWithinItsSize) {
  const Trace trace = example(5000);
  const auto whole = static_cast<int64_t>(to_html(trace, "title").size());
  size_t before = 0;
  for (const int64_t percent : {60, 75, 90}) {
    const int64_t limit = whole * percent / 100;
    const std::string page = to_html(trace, "title", limit);
    EXPECT_LE(static_cast<int64_t>(page.size()), limit);
    EXPECT_GT(static_cast<int64_t>(page.size()), limit * 95 / 100);
    // Nothing is left out while something weaker is kept.
    int64_t weakest = 10000, kept = 0;
    const nlohmann::json data = data_of(page);
    for (const auto& reads : data["reads"]) {
      for (size_t i = 0; i < reads.size();) {
        const size_t end = i + 4 + 3 * reads[i + 3].get<size_t>();
        for (i += 4; i < end; i += 3, ++kept) weakest = std::min(weakest, reads[i + 2].get<int64_t>());
      }
    }
    const int64_t stronger = weakest == 4000 ? 0 : weakest == 2000 ? 1 : weakest == 1000 ? 2 : 3;
    EXPECT_GE(kept, stronger * 10000) << percent;
    EXPECT_GT(static_cast<size_t>(kept), before);
    before = static_cast<size_t>(kept);
    EXPECT_EQ(data["about"].get<std::string>().find("leaves out 0.00 %"), std::string::npos);
  }
  EXPECT_ERROR(to_html(trace, "title", 50'000), ErrorKind::config, "choose fewer tokens with --count");
}

}  // namespace
}  // namespace quire::test
