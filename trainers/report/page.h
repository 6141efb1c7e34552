// The page of quire report: curves of several runs together, and tables.
#pragma once

#include <array>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trainers/compare/report.h"
#include "trainers/report/reported_run.h"

namespace quire {

struct RunsPage {
  std::vector<ReportedRun> runs;
  std::optional<Comparison> comparison;  // of the runs with a stored evaluation; nothing without any
};

// Memory of a run during a step by what it is for.
struct MemoryKind {
  const char* name;
  int64_t Plan::*bytes;
};
inline constexpr std::array<MemoryKind, 10> kMemoryKinds{{{"weights", &Plan::weights},
                                                          {"gradients", &Plan::gradients},
                                                          {"moments", &Plan::moments},
                                                          {"average", &Plan::average},
                                                          {"state", &Plan::state},
                                                          {"host state", &Plan::host_state},
                                                          {"activations", &Plan::activations},
                                                          {"free blocks", &Plan::free_blocks},
                                                          {"workspace", &Plan::workspace},
                                                          {"program", &Plan::program}}};

// Returns all that the script of the page draws.
nlohmann::ordered_json page_data(const RunsPage& page);

// Returns one page that needs nothing from elsewhere, and forbids the browser to fetch anything. It begins with
// kRunsPageMark.
std::string to_html(const RunsPage& page);
inline constexpr std::string_view kRunsPageMark = "<!DOCTYPE html>\n<!-- a report of quire -->\n";

// Returns JSON or a script for use inside <script>, where "</script" and "<!--" would end or change it. JSON keeps its
// meaning, and so do scripts whose texts and regular expressions have these.
std::string json_in_html(const nlohmann::ordered_json& json);
std::string script_in_html(std::string_view script);

// The tables of the page.
ReportSection runs_table(const std::vector<ReportedRun>& runs);
ReportSection operations_table(const std::vector<ReportedRun>& runs);
ReportSection memory_table(const std::vector<ReportedRun>& runs);
// The keys that differ between the runs, or all of them.
ReportSection settings_table(const std::vector<ReportedRun>& runs, bool all);

}  // namespace quire
