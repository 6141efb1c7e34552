#include "trainers/run/schedule_share.h"

#include <algorithm>

#include "core/check.h"
#include "data/batches/dealt_share.h"
#include "data/corpus/split_list.h"
#include "layers/model/model_mechanisms.h"

namespace quire {

namespace {

int64_t positions(const RunConfig& config) {
  const int64_t in_step = config.data.rows * config.data.subsequence;
  return config.schedule.steps > INT64_MAX / in_step ? INT64_MAX : config.schedule.steps * in_step;
}

std::string percent(double share) {
  return fmt::format("{:.3g} %", 100 * share);
}

}  // namespace

ScheduleShare schedule_share(const RunConfig& config) {
  return {.tokens = insertion_of(config.model).tokens_before(positions(config))};
}

ScheduleShare schedule_share(const RunConfig& config, const Split& split) {
  ScheduleShare share = schedule_share(config);
  const int64_t targets_of_bos = config.data.score_first_token ? split.documents() : 0;
  share.split_tokens = split.totals().tokens + targets_of_bos;
  share.split_documents = split.documents();
  if (config.data.sampling != Sampling::documents) return share;
  const bool concat = config.data.pack == Pack::concat;
  const BatchOptions options{.data = config.data,
                             .insertion = insertion_of(config.model),
                             .alignment = concat ? alignment_of(config.model) : 1};
  const SplitList list(split.offsets(), static_cast<uint64_t>(config.run.seed), true);
  const DealtShare dealt = dealt_share(list, options, config.schedule.steps);
  share.tokens = dealt.tokens - (config.data.score_first_token ? 0 : dealt.documents);
  share.documents = std::min(dealt.documents, split.documents());
  share.exact = dealt.exact;
  return share;
}

std::string describe(const ScheduleShare& share, const RunConfig& config) {
  const int64_t steps = config.schedule.steps;
  if (share.split_tokens == 0) return fmt::format("the {} steps read up to {} tokens", steps, share.tokens);
  const std::string documents =
      share.documents ? fmt::format(" and {} of {} documents", *share.documents, share.split_documents) : "";
  const std::string read =
      share.epochs() <= 1
          ? fmt::format("{} of {} tokens ({})", share.tokens, share.split_tokens, percent(share.epochs()))
          : fmt::format("{} tokens, where there are {},", share.tokens, share.split_tokens);
  return fmt::format("the {} steps read {}{}{} of split {}: {:.3g} epochs", steps, share.exact ? "" : "about ", read,
                     documents, config.data.split, share.epochs());
}

nlohmann::ordered_json to_json(const ScheduleShare& share) {
  nlohmann::ordered_json json{{"tokens", share.tokens}};
  json["documents"] = share.documents ? nlohmann::ordered_json(*share.documents) : nlohmann::ordered_json();
  const bool known = share.split_tokens > 0;
  json["split_tokens"] = known ? nlohmann::ordered_json(share.split_tokens) : nlohmann::ordered_json();
  json["split_documents"] = known ? nlohmann::ordered_json(share.split_documents) : nlohmann::ordered_json();
  json["epochs"] = known ? nlohmann::ordered_json(share.epochs()) : nlohmann::ordered_json();
  json["exact"] = share.exact;
  return json;
}

}  // namespace quire
