#include "data/tasks/question_parts.h"

#include <algorithm>
#include <iterator>

#include "core/check.h"

namespace quire {

namespace {

using Words = std::string_view;

constexpr Words kKeyAdjectives[] = {
    "old",     "quiet",  "grey",     "narrow",  "worn",    "patient", "heavy",   "clever", "broken", "tall",
    "warm",    "early",  "small",    "distant", "silver",  "hollow",  "brown",   "proud",  "sleepy", "careful",
    "wet",     "long",   "bright",   "crooked", "amber",   "ancient", "bitter",  "blunt",  "bold",   "brisk",
    "calm",    "clear",  "cold",     "common",  "copper",  "cosy",    "curious", "damp",   "dark",   "deep",
    "dry",     "dull",   "dusty",    "eager",   "empty",   "even",    "faint",   "fair",   "false",  "fancy",
    "fierce",  "firm",   "flat",     "fond",    "foreign", "frail",   "fresh",   "frosty", "gentle", "giant",
    "glad",    "golden", "grand",    "green",   "harsh",   "hasty",   "honest",  "humble", "icy",    "idle",
    "ivory",   "jolly",  "keen",     "kind",    "late",    "lazy",    "lean",    "light",  "lively", "lonely",
    "loose",   "loud",   "lucky",    "mellow",  "merry",   "mild",    "modest",  "muddy",  "mute",   "neat",
    "noble",   "noisy",  "northern", "odd",     "pale",    "placid",  "polite",  "quick",  "rapid",  "rare",
    "ripe",    "rough",  "round",    "royal",   "rusty",   "salty",   "scarlet", "sharp",  "short",  "shy",
    "slender", "slow",   "smooth",   "sober",   "soft",    "solid",   "sour",    "stern",  "stony",  "sudden"};
constexpr Words kKeyNouns[] = {
    "lantern", "letter",  "bridge",  "harbour", "orchard", "kettle", "ledger", "window", "barrel",  "garden",
    "mill",    "stone",   "cart",    "bell",    "coat",    "ladder", "basket", "clock",  "well",    "fence",
    "stove",   "boat",    "map",     "gate",    "acorn",   "anchor", "anvil",  "apron",  "arrow",   "attic",
    "badge",   "bench",   "berry",   "blanket", "bottle",  "bowl",   "branch", "brick",  "broom",   "brush",
    "bucket",  "button",  "cabin",   "candle",  "canoe",   "canvas", "carpet", "castle", "cellar",  "chain",
    "chalk",   "chapel",  "chimney", "cloak",   "cloud",   "clover", "coin",   "comb",   "compass", "cottage",
    "cradle",  "crown",   "cup",     "curtain", "desk",    "ditch",  "door",   "drawer", "drum",    "engine",
    "farm",    "feather", "ferry",   "fiddle",  "field",   "flag",   "flute",  "forest", "fork",    "fountain",
    "glove",   "grain",   "hammer",  "hat",     "hedge",   "hill",   "hinge",  "hook",   "horn",    "island",
    "jacket",  "jar",     "jewel",   "key",     "kite",    "knife",  "lake",   "lamp",   "leaf",    "lemon",
    "lever",   "lock",    "log",     "loom",    "market",  "mast",   "meadow", "mirror", "moon",    "mountain",
    "nail",    "needle",  "net",     "oar",     "oven",    "paddle", "paper",  "path",   "pebble",  "pencil",
    "pillow",  "pipe",    "plank",   "plate",   "plough",  "pocket", "pond",   "port",   "post",    "purse",
    "quill",   "rail",    "ribbon",  "ring",    "river",   "road",   "roof",   "rope",   "saddle",  "sail",
    "scarf",   "shelf",   "shell",   "ship",    "shovel",  "spoon",  "stable", "star",   "station", "table"};

}  // namespace

std::string drawn_number(int64_t digits, TaskRandom& random) {
  std::string number(1, static_cast<char>('1' + random.below(9)));
  while (static_cast<int64_t>(number.size()) < digits) number += static_cast<char>('0' + random.below(10));
  return number;
}

std::string drawn_uuid(TaskRandom& random) {
  const uint64_t high = (random.bits() & ~0xF000ULL) | 0x4000ULL;
  const uint64_t low = (random.bits() & ~(0xC000ULL << 48)) | 0x8000ULL << 48;
  return fmt::format("{:08x}-{:04x}-{:04x}-{:04x}-{:012x}", high >> 32, high >> 16 & 0xFFFF, high & 0xFFFF, low >> 48,
                     low & 0xFFFFFFFFFFFFULL);
}

std::string drawn_key(int64_t needed, TaskRandom& random) {
  constexpr auto kPairs = static_cast<int64_t>(std::size(kKeyAdjectives) * std::size(kKeyNouns));
  const Words adjective = random.one_of(kKeyAdjectives);
  const Words noun = random.one_of(kKeyNouns);
  if (needed <= kPairs / 2) return fmt::format("{}-{}", adjective, noun);
  return fmt::format("{}-{}-{}", adjective, noun, random.one_of(kKeyNouns));
}

std::string drawn_letters(int64_t count, char first, TaskRandom& random) {
  std::string letters;
  for (int64_t i = 0; i < count; ++i) letters += static_cast<char>(first + random.below(26));
  return letters;
}

std::vector<int64_t> drawn_places(int64_t count, int64_t range, TaskRandom& random) {
  std::vector<int64_t> places;
  while (static_cast<int64_t>(places.size()) < count) {
    const int64_t place = random.below(range);
    const bool is_new = std::find(places.begin(), places.end(), place) == places.end();
    if (is_new || range < count) places.push_back(place);
  }
  std::sort(places.begin(), places.end());
  return places;
}

std::string interleaved(const std::vector<std::string>& items, const std::vector<std::string>& facts,
                        const std::vector<int64_t>& places, const std::string& separator) {
  std::vector<std::string> all;
  size_t fact = 0;
  for (size_t item = 0; item <= items.size(); ++item) {
    while (fact < facts.size() && (places[fact] <= static_cast<int64_t>(item) || item == items.size())) {
      all.push_back(facts[fact++]);
    }
    if (item < items.size()) all.push_back(items[item]);
  }
  return joined(all, separator);
}

std::string listed(const std::vector<std::string>& values) {
  if (values.size() == 1) return values[0];
  return joined({values.begin(), values.end() - 1}, ", ") + ", and " + values.back();
}

std::string joined(const std::vector<std::string>& values, const std::string& separator) {
  std::string text;
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) text += separator;
    text += values[i];
  }
  return text;
}

std::string with(std::string text, std::string_view what, std::string_view by) {
  for (size_t at = text.find(what); at != std::string::npos; at = text.find(what, at + by.size())) {
    text.replace(at, what.size(), by);
  }
  return text;
}

}  // namespace quire
