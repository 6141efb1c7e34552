// Telemetry of Infini-attention.
#include <cmath>
#include <span>

#include "layers/mixers/infini_heads.h"
#include "layers/pass/host_values.h"

namespace quire {

namespace {

double sigmoid_of(double x) {
  return 1 / (1 + std::exp(-x));
}

double norm_of(std::span<const double> values) {
  double sum = 0;
  for (const double value : values) sum += value * value;
  return std::sqrt(sum);
}

}  // namespace

// gate.H: the share of the memory in a head, for a query of zeros. share: that in the length of what heads put out, of
// tokens that read the memory. reading: the share of these tokens.
void InfiniHeads::report_share(const Forward& f, const std::vector<InfiniPiece>& pieces, const Variable& found,
                               const Variable& local, const Variable& content) const {
  const std::vector<double> biases = values_on_host(gate_.value());
  for (size_t h = 0; h < biases.size(); ++h) {
    f.add_telemetry(name_ + ".gate." + std::to_string(h), sigmoid_of(biases[h]));
  }
  const std::vector<double> a = values_on_host(found.value()), b = values_on_host(local.value());
  const std::vector<double> added = content.defined() ? values_on_host(content.value()) : std::vector<double>();
  const auto size = static_cast<size_t>(shape_.value_size);
  double of_memory = 0, of_local = 0, read = 0, all = 0;
  for (const InfiniPiece& piece : pieces) {
    read += static_cast<double>(piece.queries);
    const auto first = static_cast<size_t>(f.batch.at(piece.row, piece.first_query)) * biases.size();
    for (size_t n = first; n < first + static_cast<size_t>(piece.queries) * biases.size(); ++n) {
      const double gate = sigmoid_of(biases[n % biases.size()] + (added.empty() ? 0 : added[n]));
      of_memory += gate * norm_of({&a[n * size], size});
      of_local += (1 - gate) * norm_of({&b[n * size], size});
    }
  }
  for (const Segment& segment : f.state.segments()) all += static_cast<double>(segment.count);
  f.add_telemetry(name_ + ".share", of_memory > 0 ? of_memory / (of_memory + of_local) : 0);
  f.add_telemetry(name_ + ".reading", all > 0 ? read / all : 0);
}

// Means over the rows. tokens: how many the memory holds. norm and normaliser: the lengths of its two parts.
void InfiniHeads::report_memory(const Forward& f, const Carried& carried, const InfiniState& end) const {
  const auto rows = static_cast<double>(f.batch.rows);
  const std::vector<Segment> segments = f.state.segments();
  double tokens = 0;
  for (size_t s = 0; s < segments.size(); ++s) {
    const int64_t seen = carried.position[s] + segments[s].count;
    if (segments[s].last) tokens += static_cast<double>(seen - seen % config_.block);
  }
  const auto of_rows = [&](const Variable& x) {
    const std::vector<double> values = values_on_host(x.value());
    const size_t size = values.size() / static_cast<size_t>(f.batch.rows);
    double sum = 0;
    for (size_t n = 0; n < values.size(); n += size) sum += norm_of({&values[n], size});
    return sum / rows;
  };
  f.add_telemetry(name_ + ".tokens", tokens / rows);
  f.add_telemetry(name_ + ".norm", of_rows(end.matrix));
  f.add_telemetry(name_ + ".normaliser", of_rows(end.normaliser));
}

}  // namespace quire
