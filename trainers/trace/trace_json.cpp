// A trace as JSON, and as lines of text.
#include <fmt/format.h>

#include <cmath>
#include <nlohmann/json.hpp>

#include "trainers/trace/trace_output.h"

namespace quire {

namespace {

using Json = nlohmann::ordered_json;

// Invalid UTF-8 becomes U+FFFD.
std::string text_of(const Json& json) {
  return json.dump(-1, ' ', false, Json::error_handler_t::replace);
}

std::string number(double value) {
  return std::isfinite(value) ? fmt::format("{:.7g}", value) : "null";
}

std::string number(const std::optional<double>& value) {
  return value ? number(*value) : "null";
}

std::string span_json(const TraceSpan& span) {
  return fmt::format("[{},{},{}]", span.begin, span.end, number(static_cast<double>(span.weight)));
}

template <typename Spans>
std::string spans_json(const Spans& spans) {
  std::string json = "[";
  for (const TraceSpan& span : spans) json += (json.size() > 1 ? "," : "") + span_json(span);
  return json + "]";
}

std::string layer_json(const TraceLayer& layer) {
  return fmt::format(R"({{"name":{},"heads":{},"queries":{},"local":{},"distance":{},"left_out":{},"strongest":{}}})",
                     text_of(layer.name), layer.heads == 0 ? "null" : std::to_string(layer.heads), layer.queries,
                     number(layer.local), number(layer.distance), number(layer.left_out), spans_json(layer.strongest));
}

std::string read_json(const Trace& trace, const TraceRead& read) {
  const std::span<const TraceSpan> spans(trace.spans);
  return fmt::format(R"({{"layer":{},"head":{},"local":{},"left_out":{},"spans":{}}})", read.layer,
                     read.head < 0 ? "null" : std::to_string(read.head), number(static_cast<double>(read.local)),
                     number(static_cast<double>(read.left_out)),
                     spans_json(spans.subspan(static_cast<size_t>(read.first), static_cast<size_t>(read.count))));
}

std::string token_json(const Trace& trace, size_t index) {
  const TraceToken& token = trace.tokens[index];
  std::string json = fmt::format(R"({{"position":{},"id":{},"text":{},"nll":{},"nll_without_state":{},"reads":[)",
                                 trace.from + static_cast<int64_t>(index), token.id, text_of(token.text),
                                 number(token.nll), number(token.nll_without_state));
  for (int64_t i = 0; i < token.reads; ++i) {
    if (i > 0) json += ",";
    json += read_json(trace, trace.reads[static_cast<size_t>(token.first_read + i)]);
  }
  return json + "]}";
}

// Returns the text of a span of traced tokens, shortened, with line breaks as spaces.
std::string excerpt(const Trace& trace, const TraceSpan& span) {
  constexpr size_t kMaxBytes = 40;
  std::string text;
  const auto traced = static_cast<int64_t>(trace.tokens.size());
  if (span.begin < trace.from) return text;
  for (int64_t position = span.begin; position < std::max(span.end, span.begin + 1); ++position) {
    const int64_t token = position - trace.from;
    if (token < 0 || token >= traced) continue;
    const std::string& piece = trace.tokens[static_cast<size_t>(token)].text;
    if (text.size() + piece.size() > kMaxBytes) {
      text += "...";
      break;
    }
    text += piece;
  }
  // Quotes and escapes as in JSON: control characters never reach a terminal.
  return text_of(text);
}

}  // namespace

void write_json(const Trace& trace, const nlohmann::ordered_json& about,
                const std::function<void(std::string_view)>& write) {
  Json head = about;
  head.update(Json{{"as_trained", trace.as_trained},
                   {"subsequence", trace.subsequence},
                   {"length", trace.length},
                   {"from", trace.from},
                   {"count", trace.tokens.size()},
                   {"cuts", trace.cuts}});
  const std::string begin = text_of(head);
  write(begin.substr(0, begin.size() - 1) + R"(,"layers":[)");
  for (size_t i = 0; i < trace.layers.size(); ++i) write((i > 0 ? "," : "") + layer_json(trace.layers[i]));
  write(R"(],"tokens":[)");
  for (size_t i = 0; i < trace.tokens.size(); ++i) write((i > 0 ? "," : "") + token_json(trace, i));
  write("]}\n");
}

std::string to_text(const Trace& trace) {
  double nll = 0, without = 0, counted = 0;
  for (const TraceToken& token : trace.tokens) {
    if (!token.nll || !token.nll_without_state) continue;
    nll += *token.nll;
    without += *token.nll_without_state;
    ++counted;
  }
  std::string text;
  if (counted > 0) {
    text += fmt::format("  loss {:.4f}, {:.4f} where every subsequence of {} begins without state\n", nll / counted,
                        without / counted, trace.subsequence);
  }
  if (trace.layers.empty()) {
    return text + "  none of these tokens has retrieved anything: what came before them was read locally\n";
  }
  text += fmt::format("  {:<28} {:>9} {:>8} {:>10}\n", "layer", "retrieved", "local", "distance");
  for (const TraceLayer& layer : trace.layers) {
    const auto all = static_cast<double>(trace.tokens.size()) * static_cast<double>(std::max<int64_t>(layer.heads, 1));
    text += fmt::format("  {:<28} {:>7.1f} % {:>6.1f} % {:>10.1f}\n", layer.name,
                        100 * static_cast<double>(layer.queries) / all, 100 * layer.local, layer.distance);
    for (const TraceSpan& span : layer.strongest) {
      text += fmt::format("    {:>6.2f} %  {:<16}  {}\n", 100 * static_cast<double>(span.weight),
                          fmt::format("{}..{}", span.begin, std::max(span.end - 1, span.begin)), excerpt(trace, span));
    }
  }
  return text;
}

}  // namespace quire
