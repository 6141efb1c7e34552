// A trace as a page: the strongest spans that fit.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <numeric>

#include "core/check.h"
#include "trainers/trace/trace_output.h"
#include "trainers/trace/trace_page_parts.h"

namespace quire {

namespace {

using Json = nlohmann::ordered_json;

constexpr double kUnits = 10000;  // shares are whole numbers on the page

int64_t units(float share) {
  return std::llround(kUnits * static_cast<double>(share));
}

// Returns a text for a script element: no "<" of a text can end it.
std::string script_text(const Json& json) {
  std::string text;
  for (const char c : json.dump(-1, ' ', false, Json::error_handler_t::replace)) {
    c == '<' ? text += "\\u003c" : text += c;
  }
  return text;
}

std::string losses(const Trace& trace, std::optional<double> TraceToken::*which) {
  std::string json = "[";
  for (const TraceToken& token : trace.tokens) {
    if (json.size() > 1) json += ",";
    const std::optional<double>& loss = token.*which;
    json += loss && std::isfinite(*loss) ? fmt::format("{:.3f}", *loss) : "null";
  }
  return json + "]";
}

std::string texts(const Trace& trace) {
  std::string json = "[";
  for (const TraceToken& token : trace.tokens) json += (json.size() > 1 ? "," : "") + script_text(token.text);
  return json + "]";
}

std::string head_of(const TraceRead& read, size_t spans) {
  return fmt::format("{},{},{},{}", read.layer, read.head, units(read.local), spans);
}

std::string text_of(const Trace& trace, const TraceRead& read, const TraceSpan& span) {
  return fmt::format(",{},{},{}", trace.from + read.token - span.begin, span.end - span.begin, units(span.weight));
}

// Chooses the spans that a page holds.
struct PageSpans {
  std::vector<uint8_t> kept;  // by span of the trace
  double left_out = 0;        // the share of all heads' results that the page leaves out
};

PageSpans spans_within(const Trace& trace, int64_t bytes) {
  std::vector<int64_t> order(trace.spans.size());
  std::iota(order.begin(), order.end(), 0);
  const auto weight = [&](int64_t i) { return trace.spans[static_cast<size_t>(i)].weight; };
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) { return weight(a) > weight(b); });
  std::vector<int64_t> read_of(trace.spans.size());
  double left = 0;
  for (size_t i = 0; i < trace.reads.size(); ++i) {
    const TraceRead& read = trace.reads[i];
    std::fill_n(read_of.begin() + static_cast<std::ptrdiff_t>(read.first), read.count, static_cast<int64_t>(i));
    left += static_cast<double>(1 - read.local);
  }
  PageSpans chosen{std::vector<uint8_t>(trace.spans.size(), 0)};
  std::vector<uint8_t> begun(trace.reads.size(), 0);
  for (const int64_t number : order) {
    const auto i = static_cast<size_t>(number);
    const auto of = static_cast<size_t>(read_of[i]);
    const TraceRead& read = trace.reads[of];
    if (units(trace.spans[i].weight) == 0) break;
    // A comma before the read, and a number of spans that may grow.
    const size_t begin = begun[of] != 0 ? 0 : head_of(read, static_cast<size_t>(read.count)).size() + 1;
    bytes -= static_cast<int64_t>(begin + text_of(trace, read, trace.spans[i]).size());
    if (bytes < 0) break;
    begun[of] = 1;
    chosen.kept[i] = 1;
    left -= static_cast<double>(trace.spans[i].weight);
  }
  chosen.left_out = trace.reads.empty() ? 0 : std::max(left, 0.0) / static_cast<double>(trace.reads.size());
  return chosen;
}

std::string reads_of(const Trace& trace, const TraceToken& token, const std::vector<uint8_t>& kept) {
  std::string json = "[";
  for (int64_t n = 0; n < token.reads; ++n) {
    const TraceRead& read = trace.reads[static_cast<size_t>(token.first_read + n)];
    std::string spans;
    size_t count = 0;
    for (auto i = static_cast<size_t>(read.first); i < static_cast<size_t>(read.first + read.count); ++i) {
      if (kept[i] == 0) continue;
      spans += text_of(trace, read, trace.spans[i]);
      ++count;
    }
    if (count > 0) json += (json.size() > 1 ? "," : "") + head_of(read, count) + spans;
  }
  return json + "]";
}

std::string about(const Trace& trace, double left_out) {
  if (trace.layers.empty()) return "None of these tokens has retrieved anything.";
  return fmt::format(
      "Weights are shares of what a head has read; they sum to one with the local part. This page lists the strongest "
      "spans and leaves out {:.2f} % of what was read.",
      100 * left_out);
}

}  // namespace

std::string to_html(const Trace& trace, const std::string& title, int64_t max_bytes) {
  const std::string begin =
      std::string(kTracePageMark) +
      fmt::format(
          "<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n<meta name=\"viewport\" content=\"width=device-width, "
          "initial-scale=1\">\n<title>quire trace</title>\n<style>\n{}</style>\n</head>\n<body>\n{}",
          kTracePageStyle, kTracePageBody) +
      "<script type=\"application/json\" id=\"data\">";
  Json layers = Json::array();
  for (const TraceLayer& layer : trace.layers) layers.push_back({layer.name, layer.heads});
  std::string data =
      fmt::format(R"({{"title":{},"from":{},"cuts":{},"layers":{},"nll":{},"without":{},"text":{})", script_text(title),
                  trace.from, script_text(trace.cuts), script_text(layers), losses(trace, &TraceToken::nll),
                  losses(trace, &TraceToken::nll_without_state), texts(trace));
  const std::string end = fmt::format("</script>\n<script>\n{}</script>\n</body>\n</html>\n", kTracePageScript);
  // Beside the spans: brackets and commas of every token, and the paragraph about the page.
  constexpr int64_t kMaxAbout = 400;
  const auto fixed =
      static_cast<int64_t>(begin.size() + data.size() + end.size() + 3 * trace.tokens.size()) + kMaxAbout;
  if (fixed > max_bytes) {
    fail(ErrorKind::config,
         "--html: the text alone takes {} bytes of a page, which has at most {}; choose fewer tokens "
         "with --count",
         fixed, max_bytes);
  }
  const PageSpans chosen = spans_within(trace, max_bytes - fixed);
  data += R"(,"about":)" + script_text(about(trace, chosen.left_out)) + R"(,"reads":[)";
  for (size_t i = 0; i < trace.tokens.size(); ++i) {
    if (i > 0) data += ",";
    data += reads_of(trace, trace.tokens[i], chosen.kept);
  }
  return begin + data + "]}" + end;
}

}  // namespace quire
