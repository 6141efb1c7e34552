// A trace as JSON, as lines of text, and as a page.
#pragma once

#include <functional>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <string_view>

#include "trainers/trace/trace.h"

namespace quire {

// Writes one line piece by piece, since a long trace is large: the fields of `about`, then those of the trace
// (configs/TRACE.md).
void write_json(const Trace& trace, const nlohmann::ordered_json& about,
                const std::function<void(std::string_view)>& write);

// A table of the layers, and the spans that each has read most.
std::string to_text(const Trace& trace);

// The first bytes of a page; a file that begins with them may be replaced.
inline constexpr std::string_view kTracePageMark = "<!DOCTYPE html>\n<!-- a trace of quire -->\n";
inline constexpr int64_t kMaxTracePageBytes = 40'000'000;

// One page without anything from elsewhere, of at most max_bytes. It holds the strongest spans that fit, and says what
// share it leaves out. Throws Error(config) where the tokens alone do not fit.
std::string to_html(const Trace& trace, const std::string& title, int64_t max_bytes = kMaxTracePageBytes);

}  // namespace quire
