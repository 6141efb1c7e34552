#include "trainers/run/run_events.h"

#include <charconv>
#include <cmath>
#include <numbers>

namespace quire {

namespace {

namespace fs = std::filesystem;

EventFile::Setting setting_of(const ConfigNode& node) {
  const std::string& text = node.text;
  if (node.kind != ConfigNode::Kind::scalar) return flow_yaml(node);
  if (node.quoted) return text;
  if (text == "true" || text == "false") return text == "true";
  double number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error == std::errc() && end == text.data() + text.size()) return number;
  return text;
}

// Appends the keys of a configuration; a list is one of them, and what has no value is left out.
void add_settings(std::vector<std::pair<std::string, EventFile::Setting>>& settings, const std::string& key,
                  const ConfigNode& node) {
  if (node.kind == ConfigNode::Kind::null) return;
  if (node.kind != ConfigNode::Kind::map) {
    settings.emplace_back(key, setting_of(node));
    return;
  }
  for (const ConfigEntry& entry : node.entries) add_settings(settings, join_key(key, entry.key), entry.value);
}

// Returns the text as Markdown shows it unchanged.
std::string as_code(const std::string& text) {
  std::string code;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('\n', begin), text.size() - 1) + 1;
    code += "    " + text.substr(begin, end - begin);
    begin = end;
  }
  return code;
}

std::vector<double> as_doubles(const Tensor& values) {
  if (values.dtype() == DType::f64) return values.to_vector<double>();
  const std::vector<float> read = values.to_vector<float>();
  return {read.begin(), read.end()};
}

}  // namespace

std::unique_ptr<EventFile> open_run_events(const fs::path& run_directory, RunConfig config, int64_t first_step) {
  auto events = std::make_unique<EventFile>(run_directory, first_step);
  const ConfigNode tree = write_config(StructRef<RunConfig>(config));
  std::vector<std::pair<std::string, EventFile::Setting>> settings;
  add_settings(settings, "", tree);
  events->append_settings(settings, {"train/loss", "evaluation/loss", "evaluation/bits_per_byte"},
                          fs::absolute(run_directory).lexically_normal().filename().string());
  events->append_text(first_step - 1, "configuration", as_code(write_yaml(tree)));
  return events;
}

void append_losses(EventFile& events, int64_t step, const EvaluationResult& result, const std::string& tag) {
  std::vector<double> losses;
  for (const DocumentResult& document : result.documents) {
    const double size = result.has_text ? static_cast<double>(document.bytes) * std::numbers::ln2
                                        : static_cast<double>(document.tokens);
    if (size > 0) losses.push_back(document.nll / size);
  }
  const std::string unit = result.has_text ? "bits_per_byte" : "loss";
  if (!losses.empty()) events.append_histogram(step, tag + "/" + unit, histogram_of(losses));
}

void append_weights(EventFile& events, int64_t step, const ParameterStore& store) {
  for (const ParameterStore::Entry& entry : store.entries()) {
    events.append_histogram(step, "weights/" + entry.name, histogram_of(as_doubles(store.value(entry))));
  }
}

}  // namespace quire
