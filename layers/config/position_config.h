// The configuration of positions: a kind, and the options of that kind in a section of its name.
#pragma once

#include "core/config/config.h"
#include "layers/config/rope_scaling_config.h"

namespace quire {

enum class Position { t5, xl, rope, alibi, none };
enum class RopeLayout { half, interleaved };

template <>
struct EnumNames<Position> {
  static constexpr auto value = std::to_array<std::pair<Position, std::string_view>>({{Position::t5, "t5"},
                                                                                      {Position::xl, "xl"},
                                                                                      {Position::rope, "rope"},
                                                                                      {Position::alibi, "alibi"},
                                                                                      {Position::none, "none"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"a learned bias by distance (T5)", "relative positions of Transformer-XL", "rotary positions",
       "ALiBi: slope 2^(-8h/heads) of head h = 1, 2, ... for any number of heads", "no position information"});
};
template <>
struct EnumNames<RopeLayout> {
  static constexpr auto value = std::to_array<std::pair<RopeLayout, std::string_view>>(
      {{RopeLayout::half, "half"}, {RopeLayout::interleaved, "interleaved"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"features i and i + dims/2 are a pair (LLaMA, GPT-NeoX)", "features 2i and 2i + 1 are a pair (RoFormer)"});
};

struct XlConfig {
  bool share_biases = true;
  int64_t clamp = 0;
  double base = 10000;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("share_biases", share_biases, {.help = "one pair of biases u, v for all layers instead of one per layer"});
    v.field("clamp", clamp,
            {.help = "larger distances are treated as this one; 0: no limit",
             .unit = "tokens",
             .min = 0,
             .max = 1 << 24,
             .at_evaluation = true});
    v.field("base", base, {.help = "sinusoid n advances by base^(-2n/E) per token", .min = 1, .min_exclusive = true});
  }
};

struct T5Config {
  int64_t buckets = 32;
  int64_t max_distance = 128;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("buckets", buckets, {.help = "number of learned biases per head and layer", .min = 2, .max = 4096});
    v.field(
        "max_distance", max_distance,
        {.help = "this distance and larger ones share the last bucket", .unit = "tokens", .min = 2, .max = 1 << 24});
  }
};

struct RopeConfig {
  double base = 10000;
  std::optional<int64_t> dims;
  RopeLayout layout = RopeLayout::half;
  RopeScalingConfig scaling = {};

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("base", base, {.help = "pair i of P is rotated by base^(-i/P) per token", .min = 1, .min_exclusive = true});
    v.field("dims", dims,
            {.help = "number of features of a head that are rotated, the first ones; none: all",
             .unit = "features",
             .min = 2,
             .max = 1 << 20});
    v.field("layout", layout, {.help = "which features of a head are rotated together"});
    v.section("scaling", scaling, "angles for documents that are longer than those of an earlier training");
  }
};

struct PositionConfig;

// PositionConfig as a field with kinds.
class PositionKinds : public ConfigKinds {
 public:
  explicit PositionKinds(PositionConfig& config) : config_(config) {}
  std::vector<ConfigChoice> choices() const override { return choices_of_field<Position>(); }
  std::string kind() const override;
  void choose(const std::string& kind) const override;
  void visit(const std::function<void(const ConfigStruct&)>& use) const override;
  void visit_default(const std::string& kind, const std::function<void(const ConfigStruct&)>& use) const override;

 private:
  PositionConfig& config_;
};

struct PositionConfig {
  Position kind = Position::xl;
  XlConfig xl = {};  // each holds its defaults where another kind is chosen
  T5Config t5 = {};
  RopeConfig rope = {};

  template <class Visitor>
  void fields(Visitor& v) {
    v.kinds("kind", PositionKinds(*this), KindOptions::in_section,
            {.help = "kind of position information; its options, if it has any, stand in a section of that name"});
  }
};

}  // namespace quire
