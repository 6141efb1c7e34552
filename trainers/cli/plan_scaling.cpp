#include "trainers/cli/plan_scaling.h"

#include <set>

#include "core/check.h"
#include "trainers/cli/link_speed.h"
#include "trainers/cli/numbers.h"
#include "trainers/cli/program.h"
#include "trainers/plan/plan.h"

namespace quire {

namespace {

constexpr double kMs = 1000;  // ms per s

std::string link_text(const Link& link) {
  return fmt::format("{:.6g} GB/s and {:.4g} us", link.bandwidth / 1e9, link.latency * 1e6);
}

const char* name_of(ExchangeKind kind) {
  return kind == ExchangeKind::ring ? "ring" : "pairwise";
}

void print_points(const std::vector<ScalingPoint>& points) {
  print(fmt::format("  {:>7} {:>6} {:>12} {:>9} {:>11} {:>12} {:>10} {:>10} {:>12} {:>11}\n", "ranks", "hosts",
                    "rows a rank", "MB sent", "compute ms", "exchange ms", "hidden ms", "step ms", "tokens/s",
                    "efficiency"));
  for (const ScalingPoint& point : points) {
    const std::string rows = point.min_rows == point.max_rows ? fmt::format("{}", point.max_rows)
                                                              : fmt::format("{}-{}", point.min_rows, point.max_rows);
    print(fmt::format("  {:>7} {:>6} {:>12} {:>9.2f} {:>11.2f} {:>12.3f} {:>10.3f} {:>10.2f} {:>12.0f} {:>9.1f} %\n",
                      point.ranks, point.hosts, rows, point.exchange.bytes_sent() / 1e6, kMs * point.compute,
                      kMs * point.exchange_time, kMs * point.hidden, kMs * point.step(), point.tokens_per_second,
                      100 * point.efficiency));
  }
}

nlohmann::ordered_json to_json(const std::vector<ScalingPoint>& points) {
  nlohmann::ordered_json all = nlohmann::ordered_json::array();
  for (const ScalingPoint& point : points) {
    const StepExchange& exchange = point.exchange;
    all.push_back({
        {"ranks", point.ranks},
        {"hosts", point.hosts},
        {"rows", point.rows},
        {"least_rows", point.min_rows},
        {"most_rows", point.max_rows},
        {"gradient_bytes", exchange.gradient_bytes()},
        {"weight_bytes", exchange.weight_bytes()},
        {"sum_bytes", exchange.sum_bytes()},
        {"reduce_scatters", exchange.buckets.size()},
        {"all_gathers", exchange.buckets.size()},
        {"all_reduces", exchange.sums.size()},
        {"host_exchanges", exchange.host_exchanges},
        {"host_exchanges_logged", exchange.host_exchanges_logged},
        {"compute_ms", kMs * point.compute},
        {"exchange_ms", kMs * point.exchange_time},
        {"hidden_ms", kMs * point.hidden},
        {"overlap", point.overlap},
        {"step_ms", kMs * point.step()},
        {"tokens_per_second", point.tokens_per_second},
        {"efficiency", point.efficiency},
    });
  }
  return all;
}

}  // namespace

void add_scaling_options(Verb& verb, ScalingArguments& arguments, Option* probe) {
  Option* const scaling = verb.add_flag("--scaling", arguments.asked,
                                        "Say how the speed scales with ranks, by a model of what they exchange; needs "
                                        "--step-ms or --probe");
  verb.add_option("--step-ms", arguments.step_ms,
                  "Milliseconds that one rank takes for a step with the rows it has of -n ranks (quire bench)")
      ->type_name("MS")
      ->needs(scaling)
      ->excludes(probe);
  verb.add_option("--fixed-ms", arguments.fixed_ms, "Of it, what does not depend on rows; --probe measures it")
      ->type_name("MS")
      ->needs(scaling)
      ->excludes(probe)
      ->capture_default_str();
  verb.add_option("--backward-share", arguments.backward_share,
                  "Share of a row's time that is its backward pass, which hides exchanges; without it 2/3, or 3/4 with "
                  "model.recompute: blocks")
      ->type_name("SHARE")
      ->needs(scaling)
      ->range(0, 1);
  verb.add_option("--ranks-per-host", arguments.ranks_per_host, "Ranks on each host")
      ->type_name("N")
      ->needs(scaling)
      ->check(whole_number(1, int64_t{1} << 20))
      ->capture_default_str();
  verb.add_option("--within-host", arguments.within_host,
                  "Bandwidth of a rank to others on its host, in each direction, and latency. Default: NVLink of an "
                  "H100 by its data sheet, and what NCCL assumes for a hop")
      ->type_name("LINK")
      ->needs(scaling)
      ->check(link_complaint)
      ->capture_default_str();
  verb.add_option("--between-hosts", arguments.between_hosts,
                  "The same to other hosts; ranks that share a port have a part of its bandwidth each. Default: an "
                  "InfiniBand port of 400 Gb/s for every GPU")
      ->type_name("LINK")
      ->needs(scaling)
      ->check(link_complaint)
      ->capture_default_str();
  verb.add_option("--control-latency", arguments.control_latency,
                  "Time of a small message between two processes; a guess that holds for most networks")
      ->type_name("TIME")
      ->needs(scaling)
      ->check(latency_complaint)
      ->capture_default_str();
  verb.add_option("--exchange", arguments.exchange,
                  "How tensors travel: ring (NCCL) or pairwise; without it ring on GPUs and pairwise on CPUs")
      ->type_name("KIND")
      ->needs(scaling)
      ->one_of({"ring", "pairwise"});
}

void check_scaling(const Verb& verb, ScalingArguments& arguments, bool probe) {
  if (!arguments.asked) return;
  arguments.has_step_ms = verb.count("--step-ms") > 0;
  arguments.has_backward_share = verb.count("--backward-share") > 0;
  if (!arguments.has_step_ms && !probe) {
    fail(ErrorKind::config, "plan: --scaling needs the time of a step: give --step-ms MS, or --probe to measure it");
  }
  if (arguments.has_step_ms && arguments.step_ms <= 0) {
    fail(ErrorKind::config, "plan: --step-ms {}: a step takes more than 0 ms", arguments.step_ms);
  }
  if (arguments.fixed_ms < 0 || (arguments.has_step_ms && arguments.fixed_ms >= arguments.step_ms)) {
    fail(ErrorKind::config, "plan: --fixed-ms {}: give at least 0 and less than --step-ms, {}", arguments.fixed_ms,
         arguments.step_ms);
  }
}

ScalingTable scaling_table(const RunConfig& config, const ScalingArguments& arguments, int64_t ranks,
                           const MeasuredStep& step) {
  ScalingTable table;
  table.step = step;
  table.rows = config.data.rows;
  table.cluster = {.ranks_per_host = arguments.ranks_per_host,
                   .within_host = read_link(arguments.within_host),
                   .between_hosts = read_link(arguments.between_hosts),
                   .control_latency = read_latency(arguments.control_latency)};
  const bool ring = arguments.exchange.empty() ? planned_device(config.run) == DeviceKind::cuda
                                               : arguments.exchange == name_of(ExchangeKind::ring);
  table.cluster.kind = ring ? ExchangeKind::ring : ExchangeKind::pairwise;
  // The backward pass takes twice the time of the forward pass; recomputation adds another forward pass to it.
  const double usual = config.model.recompute == Recompute::blocks ? 3.0 / 4 : 2.0 / 3;
  table.compute = {.fixed = step.fixed_ms / kMs,
                   .row = (step.step_ms - step.fixed_ms) / kMs / static_cast<double>(step.rows),
                   .backward = arguments.has_backward_share ? arguments.backward_share : usual};
  const ScalingModel model(config, table.cluster, table.compute);
  for (const int64_t count : std::set<int64_t>{1, 8, 64, 512, ranks}) {
    table.strong.push_back(model.strong(count));
    table.weak.push_back(model.weak(count, step.rows));
  }
  return table;
}

void print_scaling(const ScalingTable& table) {
  const Cluster& cluster = table.cluster;
  const StepExchange& exchange = table.strong.back().exchange;
  print(fmt::format(
      "scaling by a model: a rank computes {:.2f} ms with {} row{}, of which {:.2f} ms do not depend on rows\n",
      table.step.step_ms, table.step.rows, table.step.rows == 1 ? "" : "s", table.step.fixed_ms));
  print(fmt::format("  links: {} within a host of {} ranks, {} between hosts; {}\n", link_text(cluster.within_host),
                    cluster.ranks_per_host, link_text(cluster.between_hosts), name_of(cluster.kind)));
  print(
      fmt::format("  a step exchanges {} buckets of gradients ({:.1f} MB), as many of weights, {} sums and {} values "
                  "of the host ({} "
                  "when it is logged)\n",
                  exchange.buckets.size(), static_cast<double>(exchange.arena_bytes()) / 1e6, exchange.sums.size(),
                  exchange.host_exchanges, exchange.host_exchanges + exchange.host_exchanges_logged));
  print(fmt::format("  strong scaling, {} rows in all\n", table.rows));
  print_points(table.strong);
  print(fmt::format("  weak scaling, {} row{} a rank\n", table.step.rows, table.step.rows == 1 ? "" : "s"));
  print_points(table.weak);
}

nlohmann::ordered_json to_json(const ScalingTable& table) {
  const auto link = [](const Link& one) {
    return nlohmann::ordered_json{{"bytes_per_second", one.bandwidth}, {"latency_seconds", one.latency}};
  };
  return {{"exchange", name_of(table.cluster.kind)},
          {"ranks_per_host", table.cluster.ranks_per_host},
          {"within_host", link(table.cluster.within_host)},
          {"between_hosts", link(table.cluster.between_hosts)},
          {"control_latency_seconds", table.cluster.control_latency},
          {"rows", table.step.rows},
          {"step_ms", table.step.step_ms},
          {"fixed_ms", table.step.fixed_ms},
          {"backward_share", table.compute.backward},
          {"strong", to_json(table.strong)},
          {"weak", to_json(table.weak)}};
}

}  // namespace quire
