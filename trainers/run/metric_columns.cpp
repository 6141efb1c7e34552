#include "trainers/run/metric_columns.h"

#include <charconv>
#include <cmath>
#include <limits>
#include <map>

#include "core/check.h"
#include "core/json.h"
#include "trainers/run/metrics.h"

namespace quire {

namespace {

constexpr double kNone = std::numeric_limits<double>::quiet_NaN();

// Columns that are filled line by line. Lines have the same keys in the same order nearly always, so the column of a
// key is the one behind that of the key before it.
class Table {
 public:
  explicit Table(std::vector<MetricColumn>& columns) : columns_(columns) {}

  void begin_line() {
    next_ = 0;
    line_.clear();
  }
  void add(std::string_view key, double value) {
    if (next_ >= columns_.size() || columns_[next_].name != key) next_ = place_of(key);
    line_.emplace_back(next_++, value);
  }
  // Returns the number that the line has for a key; NaN without one.
  double in_line(std::string_view key) const {
    for (const auto& [column, value] : line_) {
      if (columns_[column].name == key) return value;
    }
    return kNone;
  }
  // Makes the numbers of the line those of row `row`.
  void end_line(size_t row) {
    for (const auto& [column, value] : line_) {
      std::vector<double>& values = columns_[column].values;
      values.resize(row, kNone);  // drops the first of two numbers for one key
      values.push_back(value);
    }
  }
  void finish(size_t rows) {
    for (MetricColumn& column : columns_) column.values.resize(rows, kNone);
  }

 private:
  size_t place_of(std::string_view key) {
    const auto [found, is_new] = places_.emplace(key, columns_.size());
    if (is_new) columns_.push_back({std::string(key), {}});
    return found->second;
  }

  std::vector<MetricColumn>& columns_;
  std::map<std::string, size_t, std::less<>> places_;
  size_t next_ = 0;
  std::vector<std::pair<size_t, double>> line_;
};

// Reads lines of the form that MetricsLog writes for a step: an object without spaces whose values are numbers or null,
// and one object of such values. Says no to any other line, which a parser of JSON then reads.
class StepLineScanner {
 public:
  explicit StepLineScanner(std::string_view line) : at_(line.data()), end_(line.data() + line.size()) {}

  bool scan(Table& fields, Table& telemetry) {
    if (!take("{")) return false;
    do {
      std::string_view key;
      if (!take_key(key)) return false;
      const bool taken = key == "telemetry" ? scan_telemetry(telemetry) : scan_number(key, fields);
      if (!taken) return false;
    } while (take(","));
    return take("}") && at_ == end_;
  }

 private:
  bool take(std::string_view text) {
    if (static_cast<size_t>(end_ - at_) < text.size() || std::string_view(at_, text.size()) != text) return false;
    at_ += text.size();
    return true;
  }
  bool take_key(std::string_view& key) {
    if (!take("\"")) return false;
    const char* const begin = at_;
    while (at_ != end_ && *at_ != '"' && *at_ != '\\') ++at_;
    key = std::string_view(begin, static_cast<size_t>(at_ - begin));
    return take("\":");
  }
  bool scan_number(std::string_view key, Table& table) {
    if (take("null")) {
      table.add(key, kNone);
      return true;
    }
    if (at_ == end_ || !(*at_ == '-' || (*at_ >= '0' && *at_ <= '9'))) return false;
    double value = 0;
    const auto [behind, error] = std::from_chars(at_, end_, value);
    if (error != std::errc()) return false;
    at_ = behind;
    table.add(key, value);
    return true;
  }
  bool scan_telemetry(Table& table) {
    if (!take("{")) return false;
    do {
      std::string_view key;
      if (!take_key(key) || !scan_number(key, table)) return false;
    } while (take(","));
    return take("}");
  }

  const char* at_;
  const char* end_;
};

void add_numbers(const nlohmann::ordered_json& object, Table& table) {
  for (const auto& [key, value] : object.items()) {
    if (value.is_number() || value.is_null()) table.add(key, value.is_number() ? value.get<double>() : kNone);
  }
}

class ColumnReader {
 public:
  void read(const std::filesystem::path& path) {
    visit_metrics_lines(path, [&](std::string_view line, int64_t number) { add_line(path, line, number); });
    fields_.finish(columns_.steps.size());
    telemetry_.finish(columns_.steps.size());
  }
  MetricColumns take() { return std::move(columns_); }

 private:
  void add_line(const std::filesystem::path& path, std::string_view line, int64_t number) {
    fields_.begin_line();
    telemetry_.begin_line();
    if (StepLineScanner(line).scan(fields_, telemetry_)) return add_step();
    fields_.begin_line();
    telemetry_.begin_line();
    auto object = parse_metrics_line(path, line, number);
    if (object.contains("evaluation")) return columns_.evaluations.push_back(std::move(object));
    add_numbers(object, fields_);
    const auto found = object.find("telemetry");
    if (found != object.end() && found->is_object()) add_numbers(*found, telemetry_);
    add_step();
  }

  void add_step() {
    const size_t row = columns_.steps.size();
    const double step = fields_.in_line("step");
    if (!(step > (row == 0 ? 0 : columns_.steps.back()))) return;
    fields_.end_line(row);
    telemetry_.end_line(row);
    columns_.steps.push_back(step);
  }

  MetricColumns columns_;
  Table fields_{columns_.fields};
  Table telemetry_{columns_.telemetry};
};

}  // namespace

const std::vector<double>* MetricColumns::field(std::string_view name) const {
  for (const MetricColumn& column : fields) {
    if (column.name == name) return &column.values;
  }
  return nullptr;
}

MetricColumns read_metric_columns(const std::filesystem::path& path) {
  ColumnReader reader;
  reader.read(path);
  return reader.take();
}

}  // namespace quire
