// Event files of TensorBoard: scalars, histograms, text and hyperparameters of a run, for `tensorboard --logdir RUNS`.
// A file is a sequence of records (length, masked CRC-32C of the length, bytes, masked CRC-32C of the bytes), each of
// which is an Event message in the wire format of protocol buffers.
#pragma once

#include <cstdio>
#include <filesystem>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <span>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace quire {

// CRC-32C (Castagnoli) of `bytes`, rotated and offset as in records.
uint32_t masked_crc32c(std::string_view bytes);

// Counts of values in bins: bin i ends at limits[i] and begins where bin i - 1 ends.
struct Histogram {
  double min = 0, max = 0, sum = 0, sum_of_squares = 0;
  int64_t count = 0;
  std::vector<double> limits, counts;
};
// Returns the histogram of the finite values in 30 bins of equal width; without finite values it has no bins.
Histogram histogram_of(std::span<const double> values);

class EventFile {
 public:
  using Setting = std::variant<bool, double, std::string>;

  // Creates FOLDER/events.out.tfevents.SECONDS.HOST.PID.quire. Readers drop what earlier files of the folder have for
  // the steps from `first_step` on. Throws Error(disk) when the file cannot be made or written, as all functions do.
  EventFile(const std::filesystem::path& folder, int64_t first_step);

  // Adds the figures of a line of metrics.jsonl: numbers of a step as "train/...", "telemetry/..." and "norms/...",
  // those of an evaluation as "evaluation/...", or below another name. Other fields of an evaluation are settings, and
  // are left out.
  void append(const nlohmann::ordered_json& metrics_line, const std::string& evaluation = "evaluation");
  void append_histogram(int64_t step, const std::string& tag, const Histogram& histogram);
  // Adds a text, shown as Markdown.
  void append_text(int64_t step, const std::string& tag, std::string_view text);
  // Adds the settings of the run for the HPARAMS tab, which shows them beside `metrics`, tags of scalars.
  void append_settings(const std::vector<std::pair<std::string, Setting>>& settings,
                       const std::vector<std::string>& metrics, const std::string& name);

 private:
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  void append_event(int64_t step, std::string_view fields);
  void append_record(std::string_view bytes);

  std::filesystem::path path_;
  std::unique_ptr<std::FILE, Close> file_;
};

}  // namespace quire
