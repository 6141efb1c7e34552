// Typed configuration: one listing per struct drives parsing, validation, overrides, dumping and help.
//
//   enum class Pack { pad, concat };
//   template <> struct EnumNames<Pack> { static constexpr std::array names{...}; };
//   struct DataConfig {
//     int64_t subsequence = 512;
//     template <class Visitor> void fields(Visitor& v) {
//       v.field("subsequence", subsequence, {.help = "...", .unit = "positions", .min = 1});
//     }
//     void check(ConfigChecker& c) const;   // optional: contradictions between fields
//   };
#pragma once
