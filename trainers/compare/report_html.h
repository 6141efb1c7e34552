// Parts of pages that show a report.
#pragma once

#include <string>
#include <vector>

#include "trainers/compare/report.h"

namespace quire {

// Returns the text for HTML: characters with a meaning there are replaced, and control characters by spaces.
std::string html_escaped(const std::string& text);

// Returns the page from <html> to the style, which leaves the head open.
std::string html_head(const std::string& title);
std::string html_warnings(const std::vector<std::string>& warnings);
std::string html_table(const ReportSection& section);
// Returns heading, note, table and remarks.
std::string html_section(const ReportSection& section);

}  // namespace quire
