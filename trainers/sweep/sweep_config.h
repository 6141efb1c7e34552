// The file of quire sweep: variants of a configuration, each with several seeds.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "core/config/config.h"

namespace quire {

struct SweepVariant {
  std::string name;
  std::optional<std::string> config;
  std::optional<std::string> from;
  std::vector<std::string> set;
  bool compared = true;
  std::optional<std::string> beside;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("name", name,
            {.help = "name of the variant: letters, digits, '.', '_' and '-'; its runs are the folders NAME-SEED",
             .required = true});
    v.field("config", config, {.help = "YAML file of these runs; none: that of the sweep", .path = true});
    v.field("from", from,
            {.help = "a variant before this one, whose trained weights of the same seed are the initial weights "
                     "(init.from); none: begin with new weights, or with those of init.from"});
    v.field("set", set,
            {.help = "settings of this variant, as in [\"optimizer.lr=1e-3\"]. Relative paths "
                     "are relative to the current folder, as on the command line"});
    v.field("compared", compared, {.help = "false: only trained, for variants that begin with its weights"});
    v.field("beside", beside, {.help = "a compared variant that this one is compared with besides the baseline"});
  }
};

struct SweepConfig {
  std::string config;
  std::vector<std::string> set;
  std::vector<SweepVariant> variants;
  std::vector<int64_t> seeds{1, 2, 3};
  std::optional<std::string> baseline;
  std::vector<std::string> metrics;

  const SweepVariant& baseline_variant() const;  // of a sweep that check() accepts

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("config", config,
            {.help = "YAML file of a run, for all variants that name none", .required = true, .path = true});
    v.field("set", set, {.help = "settings of all runs, before those of a variant"});
    v.list("variants", variants, "what is compared, in the order of training");
    v.field("seeds", seeds, {.help = "run.seed of the runs of every variant"});
    v.field("baseline", baseline,
            {.help = "the variant that the others are compared with; none: the first that is compared"});
    v.field("metrics", metrics,
            {.help = "what they are compared by, as with --metric of quire compare; none: bits per byte"});
  }
  void check(ConfigChecker& c) const;
};

}  // namespace quire
