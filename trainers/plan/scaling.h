// A model of how the speed of a run scales with its ranks, past the machines at hand.
//
// A message of n bytes over a link takes latency + n / bandwidth (Hockney 1994). A reduce_scatter or all_gather of S
// bytes over N ranks, g of them on a host and H = ceil(N / g) hosts, takes
//   ring      (N - H) latency_in + (H - 1) latency_out + S' max(1 / bandwidth_in, 1 / (k bandwidth_out))
//             Each rank passes on S' = (N - 1) / N S bytes to the next one (Patarasuk and Yuan 2009). Every rank has a
//             link to other hosts of its own, and as many rings share the bytes as there are ranks on the host with
//             fewest, k; the slowest link binds. NCCL's own tuning counts hops in the same way.
//   pairwise  (k - 1) (latency_in + p / bandwidth_in) + (N - k) (latency_out + p / bandwidth_out)
//             In N - 1 rounds each rank exchanges with another one the part of p = S / N bytes that one of them needs
//             (Thakur, Rabenseifner and Gropp 2005, section 4).
// An all_reduce is both after another. Where parts differ, S' lacks the smallest part, and p is the largest. A small
// exchange of the host takes ceil(log2 N) rounds.
//
// A bucket of gradients leaves when the last backward sweep is done with it: buckets go from the end of the arena to
// its beginning, each after the time that is its share of the elements. What is exchanged during the sweep is hidden;
// it is taken to slow down no computation. The gathering of weights is not hidden.
#pragma once

#include "trainers/plan/step_exchange.h"

namespace quire {

struct Link {
  double bandwidth = 0;  // bytes/s of one rank, in each direction
  double latency = 0;    // s
};

enum class ExchangeKind { ring, pairwise };

struct Cluster {
  int64_t ranks_per_host = 8;
  Link within_host = {};
  Link between_hosts = {};
  double control_latency = 0;  // s; of a message between two processes
  ExchangeKind kind = ExchangeKind::ring;

  int64_t hosts(int64_t ranks) const { return (ranks + ranks_per_host - 1) / ranks_per_host; }
  // Returns the seconds of a reduce_scatter or an all_gather.
  double pass(int64_t ranks, const StepExchange::Bucket& bucket) const;
  double all_reduce(int64_t ranks, int64_t bytes) const;
  double host_exchange(int64_t ranks) const;
};

// The exchange of gradients during the last backward sweep of a step, which takes `sweep` s.
struct GradientOverlap {
  double exchange = 0;  // s for all buckets
  double hidden = 0;    // s of `exchange` that overlap with the sweep
  double early = 0;     // share of the bytes that is summed before the sweep ends
};
GradientOverlap gradient_overlap(const Cluster& cluster, const StepExchange& exchange, double sweep);

// The computing time of a rank in a step, in s.
struct ComputeTime {
  double fixed = 0;     // does not depend on rows
  double row = 0;       // per row
  double backward = 0;  // share of a row's time that is the backward pass
  double of(int64_t rows) const { return fixed + row * static_cast<double>(rows); }
};

// A step on N ranks; times in s.
struct ScalingPoint {
  int64_t ranks = 1;
  int64_t hosts = 1;
  int64_t rows = 0;      // rows of all ranks
  int64_t min_rows = 0;  // rows of the rank with fewest; 0: some ranks only wait
  int64_t max_rows = 0;
  StepExchange exchange;
  double compute = 0;        // for the rank with the largest number of rows
  double exchange_time = 0;  // for everything that is exchanged
  double hidden = 0;         // the part of exchange_time that overlaps with the backward sweep
  double overlap = 0;        // the share of the gradient that is summed before the sweep ends
  double tokens_per_second = 0;
  double efficiency = 0;  // tokens_per_second over N times that of one rank
  double step() const { return compute + exchange_time - hidden; }
};

class ScalingModel {
 public:
  ScalingModel(const RunConfig& config, const Cluster& cluster, const ComputeTime& compute);
  ScalingPoint strong(int64_t ranks) const;              // data.rows stay as they are
  ScalingPoint weak(int64_t ranks, int64_t rows) const;  // every rank has `rows` rows
 private:
  ScalingPoint point(int64_t ranks, int64_t rows) const;

  const RunConfig& config_;
  Cluster cluster_;
  ComputeTime compute_;
  StepExchanges exchanges_;
};

}  // namespace quire
