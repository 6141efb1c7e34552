#include "trainers/trace/trace_gatherer.h"

#include <algorithm>
#include <cctype>
#include <numeric>

namespace quire {

namespace {

constexpr size_t kStrongest = 5;

bool is_digit(char c) {
  return std::isdigit(static_cast<unsigned char>(c)) != 0;
}

// Orders the paths of layers as the model has them: numbers by value.
bool comes_before(const std::string& a, const std::string& b) {
  size_t i = 0, j = 0;
  while (i < a.size() && j < b.size()) {
    if (is_digit(a[i]) && is_digit(b[j])) {
      size_t end_a = i, end_b = j;
      while (end_a < a.size() && is_digit(a[end_a])) ++end_a;
      while (end_b < b.size() && is_digit(b[end_b])) ++end_b;
      const auto left = std::pair(end_a - i, a.substr(i, end_a - i));
      const auto right = std::pair(end_b - j, b.substr(j, end_b - j));
      if (left != right) return left < right;
      i = end_a;
      j = end_b;
    } else if (a[i++] != b[j++]) {
      return a[i - 1] < b[j - 1];
    }
  }
  return a.size() - i < b.size() - j;
}

bool is_stronger(const TraceSpan& a, const TraceSpan& b) {
  return std::tuple(-a.weight, a.begin, a.end) < std::tuple(-b.weight, b.begin, b.end);
}

}  // namespace

void TraceGatherer::add(const Batch& batch, const Retrievals& retrieved) {
  for (const auto& [name, all] : retrieved) {
    const auto [entry, is_new] = numbers_.emplace(name, static_cast<int32_t>(sums_.size()));
    if (is_new) sums_.emplace_back().layer.name = name;
    std::map<std::pair<int64_t, int64_t>, Query> queries;  // by t and head
    for (const Retrieval& one : all) queries[{one.t, one.head}].push_back(&one);
    for (const auto& [query, spans] : queries) add_query(batch, entry->second, spans);
  }
}

void TraceGatherer::add_query(const Batch& batch, int32_t number, const Query& query) {
  const Retrieval& any = *query.front();
  const int64_t position = batch.position[static_cast<size_t>(batch.at(any.row, any.t))];
  if (insertion_.is_inserted(position)) return;
  const int64_t reader = insertion_.tokens_before(position);
  const int64_t token = reader - trace_.from;
  if (token < 0 || token >= static_cast<int64_t>(trace_.tokens.size())) return;
  Sums& sums = sums_[static_cast<size_t>(number)];
  sums.layer.heads = std::max(sums.layer.heads, any.head + 1);
  ++sums.layer.queries;
  sums.layer.local += any.local;
  std::vector<TraceSpan> spans;
  for (const Retrieval* one : query) {
    const TraceSpan span{static_cast<int32_t>(insertion_.tokens_before(one->begin)),
                         static_cast<int32_t>(insertion_.tokens_before(one->end)),
                         static_cast<float>((1 - one->local) * one->weight)};
    spans.push_back(span);
    sums.weight += one->weight;
    sums.distance += one->weight * static_cast<double>(reader - std::max(span.end, span.begin + 1) + 1);
    sums.spans[{span.begin, span.end}] += one->weight;
  }
  std::sort(spans.begin(), spans.end(), is_stronger);
  const auto kept = std::min(static_cast<std::ptrdiff_t>(spans.size()), static_cast<std::ptrdiff_t>(top_k_));
  double left_out = 0;
  for (auto span = spans.begin() + kept; span != spans.end(); ++span) left_out += static_cast<double>(span->weight);
  sums.layer.left_out += left_out;
  trace_.reads.push_back({.token = static_cast<int32_t>(token),
                          .layer = number,
                          .head = static_cast<int32_t>(any.head),
                          .local = static_cast<float>(any.local),
                          .left_out = static_cast<float>(left_out),
                          .count = static_cast<int32_t>(kept),
                          .first = static_cast<int64_t>(trace_.spans.size())});
  trace_.spans.insert(trace_.spans.end(), spans.begin(), spans.begin() + kept);
}

void TraceGatherer::finish() {
  std::vector<int32_t> order(sums_.size());
  std::iota(order.begin(), order.end(), 0);
  const auto name = [&](int32_t number) { return sums_[static_cast<size_t>(number)].layer.name; };
  std::sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return comes_before(name(a), name(b)); });
  std::vector<int32_t> place(sums_.size(), -1);
  for (const int32_t number : order) {
    Sums& sums = sums_[static_cast<size_t>(number)];
    if (sums.layer.queries == 0) continue;
    const auto queries = static_cast<double>(sums.layer.queries);
    sums.layer.local /= queries;
    sums.layer.left_out /= queries;
    sums.layer.distance = sums.weight > 0 ? sums.distance / sums.weight : 0;
    std::vector<TraceSpan> spans;
    for (const auto& [span, weight] : sums.spans) {
      spans.push_back({span.first, span.second, static_cast<float>(weight / queries)});
    }
    const auto kept = static_cast<std::ptrdiff_t>(std::min(kStrongest, spans.size()));
    std::partial_sort(spans.begin(), spans.begin() + kept, spans.end(), is_stronger);
    sums.layer.strongest.assign(spans.begin(), spans.begin() + kept);
    place[static_cast<size_t>(number)] = static_cast<int32_t>(trace_.layers.size());
    trace_.layers.push_back(sums.layer);
  }
  for (TraceRead& read : trace_.reads) read.layer = place[static_cast<size_t>(read.layer)];
  std::stable_sort(trace_.reads.begin(), trace_.reads.end(), [](const TraceRead& a, const TraceRead& b) {
    return std::tuple(a.token, a.layer, a.head) < std::tuple(b.token, b.layer, b.head);
  });
  for (size_t i = 0; i < trace_.reads.size(); ++i) {
    TraceToken& token = trace_.tokens[static_cast<size_t>(trace_.reads[i].token)];
    if (token.reads++ == 0) token.first_read = static_cast<int64_t>(i);
  }
}

}  // namespace quire
