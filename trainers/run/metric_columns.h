// The logged steps of metrics.jsonl as columns of numbers: runs log hundreds of thousands of lines, and a column is
// read at the speed of the file.
#pragma once

#include <filesystem>
#include <nlohmann/json.hpp>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct MetricColumn {
  std::string name;
  std::vector<double> values;  // one for every logged step; NaN where the line has no number
};

struct MetricColumns {
  std::vector<double> steps;                        // ascending; a line that goes back is left out
  std::vector<MetricColumn> fields;                 // "loss", "lr", ... as in configs/OUTPUT.md, in order of appearance
  std::vector<MetricColumn> telemetry;              // names of parts: "blocks.1.attention.share"
  std::vector<nlohmann::ordered_json> evaluations;  // whole lines

  // Returns the values of a field; nullptr when no line has it.
  const std::vector<double>* field(std::string_view name) const;
};

// Returns what the whole lines have; a file that does not exist has none. An incomplete last line is dropped, so the
// file of a run that goes on may be read. Throws Error(data) for other damage.
MetricColumns read_metric_columns(const std::filesystem::path& path);

}  // namespace quire
