// The keys that the previous version of quire had and this one has under another name. `quire config --upgrade`, the
// reading of runs of the previous version, the messages about such keys and configs/REFERENCE.md follow this table.
#pragma once

#include <array>
#include <map>
#include <string>
#include <vector>

#include "core/config/config.h"

namespace quire {

// Says what becomes of the value, where it is not the same under the new name.
enum class KeyChange {
  none,
  into_section,  // the value becomes the key `kind` of a section
  carries,       // true means nothing any more; false becomes 0, and the number beside it a limit
  removed,
};

struct PreviousKey : ReplacedKey {
  KeyChange change = KeyChange::none;
  std::string_view kind = {};       // of the memory that has it
  std::string_view otherwise = {};  // the name of the number beside a `carries` that is false
  std::string_view number = {};     // and its default value then
};

// Keys of layers stand first, those that make a section before those that move into it.
inline constexpr auto kPreviousKeys = std::to_array<PreviousKey>({
    {{"model.position", "model.position.kind", ""}, KeyChange::into_section},
    {{"model.attention.xl", "model.position.xl", ""}},
    {{"model.attention.t5", "model.position.t5", ""}},
    {{"model.attention.rope", "model.position.rope", ""}},
    {{"model.attention.token_shift", "model.attention.shifted_share", "share of the features"}},
    {{"model.attention.window", "model.attention.softmax.window", "tokens"}},
    {{"model.attention.window", "model.attention.vq.window", "tokens"}},
    {{"model.attention.same_length", "model.attention.softmax.same_length", ""}},
    {{"model.attention.attend_self", "model.attention.softmax.attend_self", ""}},
    {{"model.attention.qk_norm", "model.attention.softmax.qk_norm", ""}},
    {{"model.attention.implementation", "model.attention.softmax.implementation", ""}},
    {{"model.attention.cache", "model.attention.softmax.carry", ""}},
    {{"model.attention.cache.kind", "model.attention.softmax.carry.kind", ""}},
    {{"model.attention.cache.length", "model.attention.softmax.carry.length", "tokens"}},
    {{"model.attention.cache.dtype", "model.attention.softmax.carry.dtype", ""}},
    {{"model.attention.mask_empty_cache", "model.attention.softmax.carry.mask_empty", ""}},
    {{"model.attention.vq.cache", "model.attention.vq.compressive_cache", ""}},
    {{"model.attention.vq.through_cache", "model.attention.vq.cache_gradient", ""}},
    {{"model.attention.landmark.capacity", "model.attention.landmark.carry.length", "blocks"}},
    {{"model.attention.landmark.place", "model.attention.landmark.carry.place", ""}},
    {{"model.attention.landmark.dtype", "model.attention.landmark.carry.dtype", ""}},
    {{"model.attention.landmark.retrieve", "model.attention.landmark.carry.in_training", ""}},
    {{"model.attention.moba.carry", "model.attention.moba.carry.length", "blocks"}, KeyChange::carries},
    {{"model.attention.moba.capacity", "model.attention.moba.carry.length", "blocks"},
     KeyChange::none,
     "",
     "model.attention.moba.max_distance",
     "1280"},
    {{"model.attention.moba.place", "model.attention.moba.carry.place", ""}},
    {{"model.attention.moba.dtype", "model.attention.moba.carry.dtype", ""}},
    {{"model.stack.drt.carry", "model.stack.drt.carry.in_training", ""}},
    {{"model.stack.drt.capacity", "model.stack.drt.carry.length", "chunks"}},
    {{"model.stack.drt.place", "model.stack.drt.carry.place", ""}},
    {{"model.stack.drt.dtype", "model.stack.drt.carry.dtype", ""}},
    {{"model.memory.N.size", "model.memory.N.carry.length", "tokens"}, KeyChange::none, "knn"},
    {{"model.memory.N.place", "model.memory.N.carry.place", ""}, KeyChange::none, "knn"},
    {{"model.memory.N.dtype", "model.memory.N.carry.dtype", ""}, KeyChange::none, "knn"},
    {{"run.products", "", ""}, KeyChange::removed},
    {{"run.graphs", "", ""}, KeyChange::removed},
});

// Values of a layer by the names of the previous version: "position", "attention.kind", "attention.rope.base", ...
using PreviousValues = std::map<std::string, std::string>;

std::string without_model(std::string_view key);  // "attention.kind" of "model.attention.kind"
std::string value_of(const PreviousValues& values, const std::string& key, const std::string& otherwise = "");
std::vector<std::string> key_segments(std::string_view key);
bool is_below(std::string_view key, std::string_view section);  // or the section itself
bool is_of_layer(const PreviousKey& row);
// The choice that a key of a layer follows, and the kind that has it: {"attention.kind", ...} for the options of a
// mixer, {"position", ...} for those of a position. Empty when it stays where it is.
std::pair<std::string, std::string> chosen_for(const PreviousKey& row);
bool applies(const PreviousKey& row, const PreviousValues& values);
// The row of the number beside a `carries`, and the other way round (nullptr when there is none).
const PreviousKey& number_beside(const PreviousKey& row);
const PreviousKey* carries_beside(const PreviousKey& number);

// Says whether a tree has a key of the previous version. `key` is that of the node.
bool holds_previous_key(const ConfigNode& node, const std::string& key);

// All rows, for messages and pages.
const std::vector<ReplacedKey>& replaced_keys();

}  // namespace quire
