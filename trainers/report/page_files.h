// Files that are part of the program, for pages that need nothing from elsewhere.
#pragma once

#include <string_view>

namespace quire {

std::string_view chart_library();  // Chart.js of Debian's libjs-chart.js, minified, with its licence header
std::string_view page_script();    // page.js, which needs what is in chart_parts.js
std::string_view chart_parts();    // chart_parts.js
std::string_view page_style();     // page.css
std::string_view output_page();    // configs/OUTPUT.md, which says what each field of metrics.jsonl means

}  // namespace quire
