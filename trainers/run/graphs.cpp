#include "trainers/run/graphs.h"

#include <fmt/format.h>

#include "core/error.h"

namespace quire {

Graphs::Graphs(DeviceBackend& device, bool wanted)
    : device_(device), wanted_(wanted), used_(wanted && device.use_graphs(true)), reported_(device.call_counts()) {}

Graphs::~Graphs() {
  if (!used_) return;
  try {
    device_.use_graphs(false);
  } catch (const DeviceError&) {  // a persistent error is reported by whoever reads a result
  }
}

std::vector<std::string> Graphs::lines() const {
  if (!wanted_ || used_) return {};
  return {"graphs: the run computes on no GPU, so that there are none"};
}

std::vector<std::string> Graphs::report(int64_t steps) {
  if (!used_ || steps == 0) return {};
  const DeviceBackend::CallCounts now = device_.call_counts();
  const auto each = [steps](int64_t after, int64_t before) {
    return static_cast<double>(after - before) / static_cast<double>(steps);
  };
  const std::string line = fmt::format(
      "graphs: {:.0f} calls a step in {:.0f} spans, {:.0f} of them by graphs with {:.0f} kernels set anew; {} graphs "
      "are "
      "kept",
      each(now.calls, reported_.calls), each(now.spans, reported_.spans), each(now.in_graphs, reported_.in_graphs),
      each(now.changed, reported_.changed), now.graphs);
  reported_ = now;
  return {line};
}

}  // namespace quire
