#include "trainers/report/page.h"

#include <fmt/chrono.h>
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <ctime>
#include <nlohmann/json.hpp>

#include "trainers/compare/report_html.h"
#include "trainers/report/page_files.h"

namespace quire {

namespace {

// Copies of Chart.js, and of the library of colours inside it, have to carry this.
constexpr const char* kLicence =
    "Charts are drawn by Chart.js, (c) 2014-2022 Chart.js Contributors, with @kurkle/color, (c) 2018-2022 Jukka "
    "Kurkela, both under the MIT License: Permission is hereby granted, free of charge, to any person obtaining a copy "
    "of this software and associated documentation files (the \"Software\"), to deal in the Software without "
    "restriction, including without limitation the rights to use, copy, modify, merge, publish, distribute, "
    "sublicense, and/or sell copies of the Software, and to permit persons to whom the Software is furnished to do so, "
    "subject to the following conditions: The above copyright notice and this permission notice shall be included in "
    "all copies or substantial portions of the Software. THE SOFTWARE IS PROVIDED \"AS IS\", WITHOUT WARRANTY OF ANY "
    "KIND, EXPRESS OR IMPLIED, INCLUDING BUT NOT LIMITED TO THE WARRANTIES OF MERCHANTABILITY, FITNESS FOR A "
    "PARTICULAR "
    "PURPOSE AND NONINFRINGEMENT. IN NO EVENT SHALL THE AUTHORS OR COPYRIGHT HOLDERS BE LIABLE FOR ANY CLAIM, DAMAGES "
    "OR OTHER LIABILITY, WHETHER IN AN ACTION OF CONTRACT, TORT OR OTHERWISE, ARISING FROM, OUT OF OR IN CONNECTION "
    "WITH THE SOFTWARE OR THE USE OR OTHER DEALINGS IN THE SOFTWARE.";

// The page may run its own script and style, and fetch nothing.
constexpr const char* kPolicy =
    "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; script-src 'unsafe-inline'; style-src "
    "'unsafe-inline'\">\n";

constexpr const char* kControls =
    R"(<form id="controls" autocomplete="off">
<fieldset id="runs"><legend>Runs</legend></fieldset>
<fieldset><legend>Axis</legend>
<label>along <select id="axis"><option value="step">steps</option><option value="tokens">tokens read</option><option
 value="seconds">training time</option></select></label>
<label>from <select id="part"><option value="1">the beginning</option><option value="0.5">the last half</option><option
 value="0.1">the last tenth</option></select></label>
<label><input type="checkbox" id="log-x"> logarithmic</label>
</fieldset>
<fieldset><legend>Values</legend>
<label><input type="checkbox" id="log-y"> logarithmic</label>
<label><input type="checkbox" id="bands" checked> bands</label>
<label>smoothing <select id="smoothing"><option value="0">none</option><option value="0.7">light</option><option
 value="0.95">strong</option></select></label>
</fieldset>
</form>
<noscript><p>The charts need JavaScript; tables and configurations do not.</p></noscript>
)";

constexpr const char* kCurves =
    "<h2 class=\"part\">Curves</h2>\n<p>Of a long run a point is the mean of the lines since the point before, and a "
    "band reaches from the smallest to the largest of their numbers.</p>\n<div class=\"charts\" id=\"fields\"></div>\n";

std::string replaced(std::string_view text, std::string_view what, std::string_view with) {
  std::string result;
  for (size_t at = text.find(what); at != std::string_view::npos; at = text.find(what)) {
    result += text.substr(0, at);
    result += with;
    text.remove_prefix(at + what.size());
  }
  return result += text;
}

// A table without a heading, with its note.
std::string table_html(const ReportSection& section) {
  return (section.note.empty() ? "" : "<p>" + html_escaped(section.note) + "</p>\n") + html_table(section);
}

std::string title_of(const std::vector<ReportedRun>& runs) {
  constexpr size_t kMaxNames = 6;
  if (runs.size() == 1) return "Run " + runs.front().label;
  std::string names;
  for (size_t i = 0; i < std::min(runs.size(), kMaxNames); ++i) names += (i == 0 ? "" : ", ") + runs[i].label;
  return fmt::format("{} runs: {}{}", runs.size(), names, runs.size() > kMaxNames ? ", ..." : "");
}

std::string figures_html(const RunsPage& page) {
  std::string html = "<h2 class=\"part\">Evaluations</h2>\n";
  if (!page.comparison) {
    return html +
           "<p>No run has a stored evaluation of the split. A run stores one while training with "
           "evaluate.every, or by quire eval RUN.</p>\n";
  }
  html += html_warnings(page.comparison->warnings);
  for (const ReportSection& section : figure_sections(*page.comparison)) html += html_section(section);
  ReportSection runs = run_section(*page.comparison);
  runs.title = "The evaluations";
  return html + html_section(runs);
}

std::string operations_html(const std::vector<ReportedRun>& runs) {
  std::vector<std::string> without;
  for (const ReportedRun& run : runs) {
    if (run.operations.empty()) without.push_back(run.path);
  }
  std::string html = "<h2 class=\"part\">Step time by operation</h2>\n";
  if (without.size() < runs.size()) {
    html += "<div class=\"charts wide\" id=\"operations\"></div>\n" + table_html(operations_table(runs));
  }
  if (without.empty()) return html;
  const std::string& run = without.front();
  return html + fmt::format(
                    "<p>Not recorded for {}. This measures the steps of a run on random tokens, and the page "
                    "then shows them:</p>\n<pre>{}</pre>\n",
                    html_escaped(fmt::format("{}", fmt::join(without, ", "))),
                    html_escaped(fmt::format("quire bench {}/config.yaml --profile --json > {}", run,
                                             profile_file(run).string())));
}

std::string memory_html(const std::vector<ReportedRun>& runs) {
  return "<h2 class=\"part\">Memory by kind</h2>\n<div class=\"charts wide\" id=\"memory\"></div>\n" +
         table_html(memory_table(runs));
}

std::string settings_html(const std::vector<ReportedRun>& runs) {
  std::string html = "<h2 class=\"part\">Configurations</h2>\n";
  const ReportSection differing = settings_table(runs, false);
  if (runs.size() > 1 && differing.rows.empty()) html += "<p>All keys have the same values.</p>\n";
  if (!differing.rows.empty()) html += "<p>Keys whose values differ.</p>\n" + html_table(differing);
  return html + "<details><summary>All keys</summary>\n" + html_table(settings_table(runs, true)) + "</details>\n";
}

}  // namespace

std::string json_in_html(const nlohmann::ordered_json& json) {
  const std::string text = json.dump(-1, ' ', false, nlohmann::ordered_json::error_handler_t::replace);
  return replaced(text, "<", "\\u003c");
}

std::string script_in_html(std::string_view script) {
  return replaced(replaced(script, "</script", "<\\/script"), "<!--", "<\\!--");
}

std::string to_html(const RunsPage& page) {
  const std::string title = title_of(page.runs);
  std::vector<std::string> notes;
  for (const ReportedRun& run : page.runs) notes.insert(notes.end(), run.notes.begin(), run.notes.end());
  std::string html(kRunsPageMark);
  html += html_head("quire report: " + title) + kPolicy;
  html += fmt::format("<style>\n{}</style>\n</head>\n<body>\n<h1>{}</h1>\n", page_style(), html_escaped(title));
  html += fmt::format("<p>Written at {:%Y-%m-%d %H:%M:%S} by quire report.</p>\n", fmt::localtime(std::time(nullptr)));
  html += html_warnings(notes) + html_section(runs_table(page.runs)) + kControls;
  html += kCurves;
  html += figures_html(page) + "<div id=\"telemetry\"></div>\n";
  html += operations_html(page.runs) + memory_html(page.runs) + settings_html(page.runs);
  html += fmt::format("<details><summary>Licence of the charts</summary><p>{}</p></details>\n", html_escaped(kLicence));
  html += "<script type=\"application/json\" id=\"data\">" + json_in_html(page_data(page)) + "</script>\n";
  html += "<script>" + script_in_html(chart_library()) + "</script>\n";
  html += "<script>" + script_in_html(chart_parts()) + script_in_html(page_script()) + "</script>\n";
  return html + "</body>\n</html>\n";
}

}  // namespace quire
