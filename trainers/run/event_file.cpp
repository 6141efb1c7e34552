#include "trainers/run/event_file.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>
#include <nlohmann/json.hpp>

#include "core/check.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

// The wire format of protocol buffers: a field is its number and type, and a value of that type. Little-endian hosts.
class Message {
 public:
  Message& number(int field, uint64_t value) {
    varint(static_cast<uint64_t>(field) << 3);
    varint(value);
    return *this;
  }
  Message& real(int field, double value) {
    varint(static_cast<uint64_t>(field) << 3 | 1);
    raw(&value, sizeof value);
    return *this;
  }
  Message& single(int field, float value) {
    varint(static_cast<uint64_t>(field) << 3 | 5);
    raw(&value, sizeof value);
    return *this;
  }
  // A text, bytes or a message.
  Message& text(int field, std::string_view value) {
    varint(static_cast<uint64_t>(field) << 3 | 2);
    varint(value.size());
    bytes_ += value;
    return *this;
  }
  Message& packed(int field, const std::vector<double>& values) {
    return text(field, {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(double)});
  }
  const std::string& bytes() const { return bytes_; }
  operator std::string_view() const { return bytes_; }  // NOLINT: a message is a field of another

 private:
  void varint(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += static_cast<char>(value | 0x80);
    bytes_ += static_cast<char>(value);
  }
  void raw(const void* value, size_t size) { bytes_.append(static_cast<const char*>(value), size); }

  std::string bytes_;
};
static_assert(std::endian::native == std::endian::little);

std::string little_endian(uint64_t value, size_t bytes) {
  return {reinterpret_cast<const char*>(&value), bytes};
}

double now() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

std::string host_name() {
  std::array<char, 256> name{};
  return ::gethostname(name.data(), name.size() - 1) == 0 ? name.data() : "host";
}

// Metadata of a value whose plugin reads it: SummaryMetadata{plugin_data{plugin_name, content}}, data_class.
Message metadata(std::string_view plugin, std::string_view content, uint64_t data_class) {
  Message data;
  data.text(1, plugin);
  if (!content.empty()) data.text(2, content);
  Message all;
  all.text(1, data);
  if (data_class != 0) all.number(4, data_class);
  return all;
}

// Event.summary with one value.
std::string summary_of(const Message& value) {
  return Message().text(5, Message().text(1, value)).bytes();
}

// Appends a scalar for every number in `from`: "train/loss", "telemetry/blocks.2.attention.gate.0".
void add_scalars(Message& summary, const std::string& tag, const nlohmann::ordered_json& from) {
  if (from.is_number()) {
    summary.text(1, Message().text(1, tag).single(2, from.get<float>()));
  } else if (from.is_object()) {
    for (const auto& [name, value] : from.items()) add_scalars(summary, tag + "/" + name, value);
  }
}

// google.protobuf.Value
Message value_of(const EventFile::Setting& setting) {
  Message value;
  if (const auto* number = std::get_if<double>(&setting)) value.real(2, *number);
  if (const auto* text = std::get_if<std::string>(&setting)) value.text(3, *text);
  if (const auto* flag = std::get_if<bool>(&setting)) value.number(4, *flag ? 1 : 0);
  return value;
}

}  // namespace

uint32_t masked_crc32c(std::string_view bytes) {
  static const std::array<uint32_t, 256> table = [] {
    std::array<uint32_t, 256> made{};
    for (uint32_t i = 0; i < made.size(); ++i) {
      uint32_t crc = i;
      for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ (crc & 1 ? 0x82f63b78U : 0);
      made[i] = crc;
    }
    return made;
  }();
  uint32_t crc = ~0U;
  for (const char byte : bytes) crc = table[(crc ^ static_cast<uint8_t>(byte)) & 0xff] ^ (crc >> 8);
  return std::rotr(~crc, 15) + 0xa282ead8U;
}

Histogram histogram_of(std::span<const double> values) {
  constexpr int kBins = 30;
  Histogram made;
  made.min = std::numeric_limits<double>::infinity();
  made.max = -made.min;
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    made.min = std::min(made.min, value);
    made.max = std::max(made.max, value);
    made.sum += value;
    made.sum_of_squares += value * value;
    ++made.count;
  }
  if (made.count == 0) return {};
  const double width = (made.max - made.min) / kBins;
  const int bins = width > 0 ? kBins : 1;
  made.counts.resize(static_cast<size_t>(bins));
  for (int bin = 1; bin < bins; ++bin) made.limits.push_back(made.min + width * bin);
  made.limits.push_back(made.max);
  for (const double value : values) {
    if (!std::isfinite(value)) continue;
    const int bin = width > 0 ? static_cast<int>((value - made.min) / width) : 0;
    ++made.counts[static_cast<size_t>(std::clamp(bin, 0, bins - 1))];
  }
  return made;
}

EventFile::EventFile(const fs::path& folder, int64_t first_step) {
  // Two processes of one run never begin within a second with the same number on one host, but tests may.
  for (int number = 0; !file_; ++number) {
    path_ = folder / fmt::format("events.out.tfevents.{}.{}.{}.{}", static_cast<int64_t>(now()), host_name(),
                                 ::getpid(), number);
    file_.reset(std::fopen(path_.c_str(), "wbx"));
    if (!file_ && errno != EEXIST) {
      fail(ErrorKind::disk, "{}: cannot be made: {}", path_.string(), std::strerror(errno));
    }
  }
  append_event(0, Message().text(3, "brain.Event:2"));
  append_event(first_step, Message().text(7, Message().number(1, 1)));  // SessionLog{START}
}

void EventFile::append(const nlohmann::ordered_json& line, const std::string& evaluation) {
  Message summary;
  for (const auto& [name, value] : line.items()) {
    if (name == "evaluation") {
      add_scalars(summary, evaluation + "/loss", value.at("nll").get<double>() / value.at("tokens").get<double>());
      for (const char* figure : {"token_perplexity", "word_perplexity", "bits_per_byte", "recall"}) {
        if (const auto found = value.find(figure); found != value.end()) {
          add_scalars(summary, evaluation + "/" + figure, *found);
        }
      }
    } else if (name != "step") {
      add_scalars(summary, value.is_object() ? name : "train/" + name, value);
    }
  }
  if (!summary.bytes().empty()) append_event(line.at("step").get<int64_t>(), Message().text(5, summary));
}

void EventFile::append_histogram(int64_t step, const std::string& tag, const Histogram& histogram) {
  Message proto;
  proto.real(1, histogram.min).real(2, histogram.max).real(3, static_cast<double>(histogram.count));
  proto.real(4, histogram.sum).real(5, histogram.sum_of_squares);
  proto.packed(6, histogram.limits).packed(7, histogram.counts);
  append_event(step, summary_of(Message().text(1, tag).text(5, proto)));
}

void EventFile::append_text(int64_t step, const std::string& tag, std::string_view text) {
  constexpr uint64_t kString = 7, kTensorData = 2;  // DT_STRING, DATA_CLASS_TENSOR
  Message tensor;
  tensor.number(1, kString).text(2, Message().text(2, Message().number(1, 1))).text(8, text);
  append_event(step, summary_of(Message().text(1, tag).text(8, tensor).text(9, metadata("text", "", kTensorData))));
}

void EventFile::append_settings(const std::vector<std::pair<std::string, Setting>>& settings,
                                const std::vector<std::string>& metrics, const std::string& name) {
  const double started = now();
  const auto append_data = [&](const std::string& tag, const Message& data) {
    append_event(0, summary_of(Message().text(1, tag).text(9, metadata("hparams", data, 0))));
  };
  // HParamsPluginData{experiment}: the columns. Types: 1 text, 2 flag, 3 number, by the order of Setting's
  // alternatives.
  constexpr std::array<uint64_t, 3> kTypes{2, 3, 1};
  Message experiment;
  experiment.real(3, started);
  for (const auto& [key, value] : settings) {
    experiment.text(4, Message().text(1, key).number(4, kTypes[value.index()]));
  }
  for (const std::string& tag : metrics) experiment.text(5, Message().text(1, Message().text(2, tag)));
  append_data("_hparams_/experiment", Message().text(2, experiment));
  // HParamsPluginData{session_start_info}: the values of this run.
  Message session;
  for (const auto& [key, value] : settings) session.text(1, Message().text(1, key).text(2, value_of(value)));
  session.text(4, name).real(5, started);
  append_data("_hparams_/session_start_info", Message().text(3, session));
}

void EventFile::append_event(int64_t step, std::string_view fields) {
  Message event;
  event.real(1, now()).number(2, static_cast<uint64_t>(step));
  append_record(event.bytes() + std::string(fields));
}

void EventFile::append_record(std::string_view bytes) {
  const std::string length = little_endian(bytes.size(), 8);
  const std::string record =
      length + little_endian(masked_crc32c(length), 4) + std::string(bytes) + little_endian(masked_crc32c(bytes), 4);
  const bool written = std::fwrite(record.data(), 1, record.size(), file_.get()) == record.size();
  if (!written || std::fflush(file_.get()) != 0) {
    fail(ErrorKind::disk, "{}: cannot be written: {}", path_.string(), std::strerror(errno));
  }
}

}  // namespace quire
