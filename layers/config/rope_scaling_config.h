// The configuration of rotary positions that are scaled for longer documents than the model was trained with: a kind,
// and the options of that kind beside it. layers/position/rope_frequencies.h has the formulas.
#pragma once

#include "core/config/config.h"

namespace quire {

enum class RopeScaling { none, linear, dynamic, llama3, yarn, longrope };

template <>
struct EnumNames<RopeScaling> {
  static constexpr auto value =
      std::to_array<std::pair<RopeScaling, std::string_view>>({{RopeScaling::none, "none"},
                                                               {RopeScaling::linear, "linear"},
                                                               {RopeScaling::dynamic, "dynamic"},
                                                               {RopeScaling::llama3, "llama3"},
                                                               {RopeScaling::yarn, "yarn"},
                                                               {RopeScaling::longrope, "longrope"}});
  static constexpr auto help =
      std::to_array<std::string_view>({"angles as they are", "all angles are divided by the factor (Chen et al. 2023)",
                                       "a larger base, for documents of a stated length (dynamic NTK)",
                                       "slow pairs are divided by the factor, fast ones stay as they are (Llama 3.1)",
                                       "the same by another rule, and larger logits (Peng et al. 2023)",
                                       "each pair is divided by a number of its own (Ding et al. 2024)"});
};

struct LinearScaling {
  double factor = 1;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("factor", factor,
            {.help = "angles are divided by this", .min = 0, .min_exclusive = true, .required = true});
  }
};

// Visits an option that several kinds have.
template <class Visitor>
void visit_original_length(Visitor& v, int64_t& original_length) {
  v.field("original_length", original_length,
          {.help = "tokens of a document for which the model was trained without scaling",
           .unit = "tokens",
           .min = 2,
           .max = 1 << 30,
           .required = true});
}
template <class Visitor>
void visit_length(Visitor& v, int64_t& length) {
  v.field(
      "length", length,
      {.help = "tokens of the documents that are read. The angles depend on this number and not on the document, so "
               "that keys keep theirs",
       .unit = "tokens",
       .min = 2,
       .max = 1 << 30,
       .required = true,
       .at_evaluation = true});
}

struct DynamicScaling {
  double factor = 1;
  int64_t original_length = 2048;
  int64_t length = 2048;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("factor", factor,
            {.help = "s: the base is multiplied by (s n / n0 - s + 1)^(dims / (dims - 2)), where n0 is "
                     "original_length and n the larger of length and n0",
             .min = 1,
             .required = true});
    visit_original_length(v, original_length);
    visit_length(v, length);
  }
};

struct Llama3Scaling {
  double factor = 8;
  int64_t original_length = 8192;
  double low_frequency_factor = 1;
  double high_frequency_factor = 4;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("factor", factor, {.help = "slow pairs are divided by this", .min = 1, .required = true});
    visit_original_length(v, original_length);
    v.field("low_frequency_factor", low_frequency_factor,
            {.help = "pairs that turn fewer times than this within original_length are slow", .min = 0});
    v.field(
        "high_frequency_factor", high_frequency_factor,
        {.help = "pairs that turn more often than this are fast; between the two numbers angles are mixed", .min = 0});
  }
  void check(ConfigChecker& c) const {
    c.require(low_frequency_factor < high_frequency_factor, "high_frequency_factor",
              "must be above low_frequency_factor: angles are mixed between them");
  }
};

struct YarnScaling {
  double factor = 1;
  int64_t original_length = 4096;
  double beta_fast = 32;
  double beta_slow = 1;
  bool truncate = true;
  std::optional<double> attention_factor;
  std::optional<double> mscale;
  std::optional<double> mscale_all_dim;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("factor", factor,
            {.help = "slow pairs are divided by this", .min = 0, .min_exclusive = true, .required = true});
    visit_original_length(v, original_length);
    v.field("beta_fast", beta_fast,
            {.help = "pairs that turn more often than this within original_length stay as they are",
             .min = 0,
             .min_exclusive = true});
    v.field("beta_slow", beta_slow,
            {.help = "pairs that turn fewer times than this are divided by the factor; those between are mixed",
             .min = 0,
             .min_exclusive = true});
    v.field("truncate", truncate, {.help = "the first and the last mixed pair are rounded to whole numbers"});
    v.field("attention_factor", attention_factor,
            {.help = "logits are multiplied by the square of this; none: what mscale and mscale_all_dim give, or 0.1 "
                     "ln(factor) + 1",
             .min = 0,
             .min_exclusive = true});
    v.field("mscale", mscale,
            {.help = "with mscale_all_dim: attention_factor is (0.1 mscale ln(factor) + 1) / (0.1 mscale_all_dim "
                     "ln(factor) + 1) (DeepSeek)"});
    v.field("mscale_all_dim", mscale_all_dim, {.help = "see mscale"});
  }
  void check(ConfigChecker& c) const {
    c.require(beta_slow < beta_fast, "beta_fast", "must be above beta_slow: angles are mixed between them");
    c.require(mscale.has_value() == mscale_all_dim.has_value(), mscale ? "mscale" : "mscale_all_dim",
              "mscale and mscale_all_dim say something only together; give both or none");
    c.require(!attention_factor || !mscale, "attention_factor",
              "mscale and mscale_all_dim give it already; leave one of them out");
  }
};

struct LongropeScaling {
  std::optional<double> factor;
  int64_t original_length = 4096;
  int64_t length = 4096;
  std::optional<double> attention_factor;
  std::vector<double> short_factors;
  std::vector<double> long_factors;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("factor", factor,
            {.help = "s: attention_factor is sqrt(1 + ln s / ln original_length) where none is given; none: length / "
                     "original_length",
             .min = 0,
             .min_exclusive = true});
    visit_original_length(v, original_length);
    visit_length(v, length);
    v.field("attention_factor", attention_factor,
            {.help = "logits are multiplied by the square of this; none: what `factor` gives",
             .min = 0,
             .min_exclusive = true});
    const FieldInfo of_pairs{.min = 0, .min_exclusive = true, .required = true};
    const auto with = [&](std::string_view help) {
      FieldInfo info = of_pairs;
      info.help = help;
      return info;
    };
    v.field("short_factors", short_factors,
            with("the number by which the angle of each pair is divided where length is at most original_length"));
    v.field("long_factors", long_factors, with("the same where length is above original_length"));
  }
};

struct RopeScalingConfig;

// RopeScalingConfig as a field with kinds.
class RopeScalingKinds : public ConfigKinds {
 public:
  explicit RopeScalingKinds(RopeScalingConfig& config) : config_(config) {}
  std::vector<ConfigChoice> choices() const override { return choices_of_field<RopeScaling>(); }
  std::string kind() const override;
  void choose(const std::string& kind) const override;
  void visit(const std::function<void(const ConfigStruct&)>& use) const override;
  void visit_default(const std::string& kind, const std::function<void(const ConfigStruct&)>& use) const override;

 private:
  RopeScalingConfig& config_;
};

struct RopeScalingConfig {
  RopeScaling kind = RopeScaling::none;
  LinearScaling linear = {};  // each holds its defaults where another kind is chosen
  DynamicScaling dynamic = {};
  Llama3Scaling llama3 = {};
  YarnScaling yarn = {};
  LongropeScaling longrope = {};

  template <class Visitor>
  void fields(Visitor& v) {
    v.kinds("kind", RopeScalingKinds(*this), KindOptions::beside,
            {.help = "how angles are scaled; the options of a kind stand beside it"});
  }
};

}  // namespace quire
