#include "trainers/plan/scaling.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

namespace {

double real(int64_t value) {
  return static_cast<double>(value);
}

}  // namespace

double Cluster::pass(int64_t ranks, const StepExchange::Bucket& bucket) const {
  if (ranks == 1) return 0;
  const int64_t all_hosts = hosts(ranks);
  const int64_t on_host = ranks - (all_hosts - 1) * ranks_per_host;  // ranks of the host with fewest
  const bool several_on_host = std::min(ranks, ranks_per_host) > 1;
  if (kind == ExchangeKind::pairwise) {
    const auto rounds = [&](int64_t count, const Link& link) {
      return count == 0 ? 0.0 : real(count) * (link.latency + real(bucket.max_part) / link.bandwidth);
    };
    return rounds(on_host - 1, within_host) + rounds(ranks - on_host, between_hosts);
  }
  double per_byte = several_on_host ? 1 / within_host.bandwidth : 0;
  if (all_hosts > 1) per_byte = std::max(per_byte, 1 / (real(on_host) * between_hosts.bandwidth));
  const double latency = real(ranks - all_hosts) * within_host.latency + real(all_hosts - 1) * between_hosts.latency;
  return latency + real(bucket.bytes - bucket.min_part) * per_byte;
}

double Cluster::all_reduce(int64_t ranks, int64_t bytes) const {
  return 2 * pass(ranks, {.bytes = bytes, .min_part = bytes / ranks, .max_part = (bytes + ranks - 1) / ranks});
}

double Cluster::host_exchange(int64_t ranks) const {
  int64_t rounds = 0;
  while ((int64_t{1} << rounds) < ranks) ++rounds;
  return real(rounds) * control_latency;
}

GradientOverlap gradient_overlap(const Cluster& cluster, const StepExchange& exchange, double sweep) {
  GradientOverlap result;
  const double all = real(exchange.arena_bytes());
  double ready = 0;  // bytes whose gradient is complete
  double end = 0;    // s since the sweep began
  for (auto bucket = exchange.buckets.rbegin(); bucket != exchange.buckets.rend(); ++bucket) {
    ready += real(bucket->bytes);
    const double seconds = cluster.pass(exchange.ranks, *bucket);
    end = std::max(end, sweep * ready / all) + seconds;
    result.exchange += seconds;
    if (end <= sweep) result.early += real(bucket->bytes) / all;
  }
  result.hidden = result.exchange - std::max(0.0, end - sweep);
  return result;
}

ScalingModel::ScalingModel(const RunConfig& config, const Cluster& cluster, const ComputeTime& compute)
    : config_(config), cluster_(cluster), compute_(compute), exchanges_(config) {
  QUIRE_CHECK(compute.fixed >= 0 && compute.row > 0, "scaling: a step of {} s and {} s a row", compute.fixed,
              compute.row);
}

ScalingPoint ScalingModel::strong(int64_t ranks) const {
  ScalingPoint result = point(ranks, config_.data.rows);
  result.efficiency = result.tokens_per_second / point(1, config_.data.rows).tokens_per_second / real(ranks);
  return result;
}

ScalingPoint ScalingModel::weak(int64_t ranks, int64_t rows) const {
  ScalingPoint result = point(ranks, ranks * rows);
  result.efficiency = result.tokens_per_second / point(1, rows).tokens_per_second / real(ranks);
  return result;
}

ScalingPoint ScalingModel::point(int64_t ranks, int64_t rows) const {
  ScalingPoint result{.ranks = ranks, .hosts = cluster_.hosts(ranks), .rows = rows, .exchange = exchanges_.of(ranks)};
  result.min_rows = rows / ranks;
  result.max_rows = (rows + ranks - 1) / ranks;
  result.compute = compute_.of(result.max_rows);
  if (ranks > 1) {
    // Gradients are sent only during the sweep of the last block of rows.
    const int64_t blocks = std::min(config_.data.accumulate, result.max_rows);
    const int64_t last_rows = result.max_rows - result.max_rows * (blocks - 1) / blocks;
    const GradientOverlap overlap =
        gradient_overlap(cluster_, result.exchange, compute_.backward * compute_.row * real(last_rows));
    result.hidden = overlap.hidden;
    result.overlap = overlap.early;
    result.exchange_time = 2 * overlap.exchange;  // gathering weights takes as long as scattering gradients
    for (const int64_t bytes : result.exchange.sums) result.exchange_time += cluster_.all_reduce(ranks, bytes);
    result.exchange_time +=
        cluster_.host_exchange(ranks) *
        (real(result.exchange.host_exchanges) + real(result.exchange.host_exchanges_logged) / real(config_.log.every));
  }
  result.tokens_per_second = real(rows * config_.data.subsequence) / result.step();
  return result;
}

}  // namespace quire
