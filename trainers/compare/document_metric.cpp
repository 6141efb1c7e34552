#include "trainers/compare/document_metric.h"

#include <algorithm>
#include <array>
#include <bit>
#include <charconv>
#include <numbers>

#include "core/check.h"

namespace quire {

namespace {

using Kind = DocumentMetric::Kind;

constexpr std::array<std::pair<std::string_view, Kind>, 3> kNames{{{"bits_per_byte", Kind::bits_per_byte},
                                                                   {"nats_per_token", Kind::nats_per_token},
                                                                   {"recall.accuracy", Kind::recall_accuracy}}};

// Returns the sum that the size divides.
double sum_of(const DocumentMetric& metric, const StoredDocument& document) {
  if (metric.kind == Kind::recall_accuracy) return static_cast<double>(document.recalled_right);
  if (metric.begin == 0) return document.nll;
  double nll = 0;
  for (const StoredBin& bin : document.by_position) nll += bin.begin >= metric.begin ? bin.nll : 0;
  return nll;
}

std::optional<double> quotient(const DocumentMetric& metric, double sum, int64_t size) {
  if (size == 0) return std::nullopt;
  const double unit = metric.kind == Kind::bits_per_byte ? std::numbers::ln2 : 1;
  return sum / (unit * static_cast<double>(size));
}

}  // namespace

std::string DocumentMetric::name() const {
  const auto* const found =
      std::find_if(kNames.begin(), kNames.end(), [&](const auto& entry) { return entry.second == kind; });
  return begin == 0 ? std::string(found->first) : fmt::format("{}@{}", found->first, begin);
}

int64_t DocumentMetric::size_of(const StoredDocument& document) const {
  if (kind == Kind::recall_accuracy) return document.recalled_tokens.value_or(0);
  const bool bytes = kind == Kind::bits_per_byte;
  if (begin == 0) return bytes ? document.bytes : document.tokens;
  int64_t size = 0;
  for (const StoredBin& bin : document.by_position) {
    if (bin.begin >= begin) size += bytes ? bin.bytes : bin.tokens;
  }
  return size;
}

std::optional<double> DocumentMetric::of(const StoredDocument& document) const {
  return quotient(*this, sum_of(*this, document), size_of(document));
}

std::optional<double> DocumentMetric::of(const StoredEvaluation& evaluation) const {
  ExactSum sum;
  int64_t size = 0;
  for (const StoredDocument& document : evaluation.documents) {
    sum.add(sum_of(*this, document));
    size += size_of(document);
  }
  return quotient(*this, sum.value(), size);
}

bool DocumentMetric::is_in(const StoredEvaluation& evaluation) const {
  if (kind == Kind::recall_accuracy) {
    return std::all_of(evaluation.documents.begin(), evaluation.documents.end(),
                       [](const StoredDocument& document) { return document.recalled_tokens.has_value(); });
  }
  if (kind == Kind::nats_per_token) return true;
  return evaluation.has_text && (begin == 0 || evaluation.has_bytes_by_position);
}

DocumentMetric parse_metric(const std::string& name, const std::string& where) {
  const size_t at = name.find('@');
  const auto* const found =
      std::find_if(kNames.begin(), kNames.end(), [&](const auto& entry) { return entry.first == name.substr(0, at); });
  const auto refuse = [&] {
    fail(ErrorKind::config,
         "{}: metric {}: use bits_per_byte, nats_per_token or recall.accuracy; bits_per_byte@N and nats_per_token@N, "
         "where N is a power of two, are of the targets from position N on",
         where, name);
  };
  if (found == kNames.end()) refuse();
  DocumentMetric metric{found->second, 0};
  if (at == std::string::npos) return metric;
  const auto [end, error] = std::from_chars(name.data() + at + 1, name.data() + name.size(), metric.begin);
  const bool is_number = error == std::errc() && end == name.data() + name.size() && metric.begin > 0;
  if (!is_number || !std::has_single_bit(static_cast<uint64_t>(metric.begin)) || metric.kind == Kind::recall_accuracy) {
    refuse();
  }
  return metric;
}

}  // namespace quire
