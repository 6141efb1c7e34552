#include "data/tasks/prose.h"

#include <algorithm>
#include <iterator>

namespace quire {

namespace {

using Words = std::string_view;

constexpr Words kAdjectives[] = {"old",    "quiet", "grey",   "narrow",  "worn",  "patient", "heavy",  "clever",
                                 "broken", "tall",  "warm",   "early",   "small", "distant", "silver", "hollow",
                                 "brown",  "proud", "sleepy", "careful", "wet",   "long",    "bright", "crooked"};
constexpr Words kPeople[] = {"ferryman", "widow",  "miller",  "teacher",  "baker",   "sailor",    "clerk", "shepherd",
                             "doctor",   "weaver", "captain", "gardener", "printer", "traveller", "child", "neighbour"};
constexpr Words kThings[] = {"lantern", "letter", "bridge", "harbour", "orchard", "kettle", "ledger", "window",
                             "barrel",  "garden", "mill",   "stone",   "cart",    "bell",   "coat",   "ladder",
                             "basket",  "clock",  "well",   "fence",   "stove",   "boat",   "map",    "gate"};
constexpr Words kMoves[] = {"walked",  "waited", "stood",  "came back", "hurried", "rested",
                            "laughed", "slept",  "worked", "looked up", "stopped", "listened"};
constexpr Words kActs[] = {"carried", "mended", "found", "sold",    "painted",
                           "forgot",  "bought", "hid",   "cleaned", "left"};
constexpr Words kPlaces[] = {"beside the river",  "near the market",      "under the trees",    "behind the church",
                             "on the hill",       "at the edge of town",  "across the square",  "by the sea wall",
                             "in the upper room", "along the north road", "between the houses", "below the old tower"};
constexpr Words kTimes[] = {
    "In the morning",      "After supper", "That winter", "On the third day", "Before the rain", "When the bells rang",
    "Late in the evening", "A week later", "At first",    "By then",          "Most days",       "Towards noon"};
constexpr Words kRemarks[] = {"nobody asked why",       "there was little to say", "the wind had turned",
                              "it was the usual price", "the road was empty",      "the water kept rising",
                              "everyone knew it",       "the fire had gone out"};

constexpr Words kOnsets[] = {"b", "d", "f", "g", "h", "k",  "l",  "m",  "n", "p",
                             "r", "s", "t", "v", "z", "br", "dr", "tr", "st"};
constexpr Words kVowels[] = {"a", "e", "i", "o", "u"};
constexpr Words kCodas[] = {"", "", "l", "n", "r", "s", "m", "nd", "rk"};

std::string join(std::initializer_list<Words> parts) {
  std::string text;
  for (const Words part : parts) {
    if (!text.empty() && !part.empty()) text += ' ';
    text += part;
  }
  return text;
}

// Returns the share of the words that begin with `beginning`.
template <size_t N>
double share_of(const Words (&words)[N], std::string_view beginning) {
  const auto count =
      std::count_if(std::begin(words), std::end(words), [&](Words word) { return word.starts_with(beginning); });
  return static_cast<double>(count) / N;
}

std::string scene(TaskRandom& random) {
  const Words adjective = random.one_of(kAdjectives);
  const Words person = random.one_of(kPeople);
  if (random.below(2) == 0) return join({"the", adjective, person, random.one_of(kMoves), random.one_of(kPlaces)});
  const Words act = random.one_of(kActs);
  return join({"the", person, act, "the", adjective, random.one_of(kThings), random.one_of(kPlaces)});
}

}  // namespace

std::string prose_sentence(TaskRandom& random) {
  std::string text;
  switch (random.below(4)) {
    case 0:
      text = capitalised(scene(random));
      break;
    case 1: {
      const Words time = random.one_of(kTimes);
      text = std::string(time) + " " + scene(random);
      break;
    }
    case 2: {
      text = capitalised(scene(random)) + ", and ";
      text += random.one_of(kRemarks);
      break;
    }
    default: {
      const Words time = random.one_of(kTimes);
      text = std::string(time) + " " + scene(random) + " while ";
      text += scene(random);
    }
  }
  return text + (random.below(6) == 0 ? ".\n" : ". ");
}

std::string made_up_word(TaskRandom& random) {
  std::string word;
  const int64_t syllables = 2 + random.below(2);
  for (int64_t i = 0; i < syllables; ++i) {
    word += random.one_of(kOnsets);
    word += random.one_of(kVowels);
  }
  word += random.one_of(kCodas);
  return word;
}

namespace {

// Returns the probability that the remaining syllables and the coda begin with `beginning`.
double rest_share(std::string_view beginning, int64_t syllables) {
  if (beginning.empty()) return 1;
  if (syllables == 0) return share_of(kCodas, beginning);
  double sum = 0;
  for (const Words onset : kOnsets) {
    if (onset.starts_with(beginning)) {
      sum += 1;
    } else if (beginning.starts_with(onset)) {
      const std::string_view rest = beginning.substr(onset.size());
      const bool is_vowel = std::find(std::begin(kVowels), std::end(kVowels), rest.substr(0, 1)) != std::end(kVowels);
      if (is_vowel) sum += rest_share(rest.substr(1), syllables - 1) / std::size(kVowels);
    }
  }
  return sum / std::size(kOnsets);
}

}  // namespace

double made_up_word_share(std::string_view beginning) {
  return 0.5 * rest_share(beginning, 2) + 0.5 * rest_share(beginning, 3);
}

std::string capitalised(std::string word) {
  if (word[0] >= 'a' && word[0] <= 'z') word[0] = static_cast<char>(word[0] - 'a' + 'A');
  return word;
}

int64_t prose_label_count() {
  return static_cast<int64_t>(std::size(kAdjectives) * std::size(kThings));
}

std::string prose_label(int64_t number) {
  const auto index = static_cast<size_t>(number);
  return std::string(kAdjectives[index / std::size(kThings)]) + "-" + std::string(kThings[index % std::size(kThings)]);
}

std::string prose_thing(TaskRandom& random) {
  const Words adjective = random.one_of(kAdjectives);
  return join({adjective, random.one_of(kThings)});
}

double prose_thing_share(std::string_view beginning) {
  const size_t space = beginning.find(' ');
  if (space == std::string_view::npos) return share_of(kAdjectives, beginning);
  const std::string_view adjective = beginning.substr(0, space);
  const auto same = std::count(std::begin(kAdjectives), std::end(kAdjectives), adjective);
  return static_cast<double>(same) / std::size(kAdjectives) * share_of(kThings, beginning.substr(space + 1));
}

std::string prose_deed(TaskRandom& random) {
  const Words move = random.one_of(kMoves);
  return join({move, random.one_of(kPlaces)});
}

}  // namespace quire
