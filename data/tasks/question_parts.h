// The parts that several questions share.
#pragma once

#include <algorithm>
#include <set>
#include <string>
#include <vector>

#include "data/tasks/task_random.h"

namespace quire {

// Returns a value that is not in `used`, and adds it. `draw` must have enough different values.
template <typename Draw>
std::string unused(std::set<std::string>& used, const Draw& draw) {
  for (;;) {
    std::string value = draw();
    if (used.insert(value).second) return value;
  }
}

std::string drawn_number(int64_t digits, TaskRandom& random);  // without a leading zero
std::string drawn_uuid(TaskRandom& random);                    // version 4
// Returns "grey-harbour"; where that leaves too few, "grey-harbour-lantern".
std::string drawn_key(int64_t needed, TaskRandom& random);
std::string drawn_letters(int64_t count, char first, TaskRandom& random);  // first: 'a' or 'A'

template <typename Value>
void shuffle(std::vector<Value>& values, TaskRandom& random) {
  for (size_t i = values.size(); i > 1; --i) {
    std::swap(values[i - 1], values[static_cast<size_t>(random.below(static_cast<int64_t>(i)))]);
  }
}

// Sorts values by the first place of item_of(value) among `items`.
template <typename ItemOf>
void order_by(std::vector<std::string>& values, const std::vector<std::string>& items, const ItemOf& item_of) {
  const auto place = [&](const std::string& value) { return std::find(items.begin(), items.end(), item_of(value)); };
  std::sort(values.begin(), values.end(),
            [&](const std::string& a, const std::string& b) { return place(a) < place(b); });
}

// Returns `count` of the numbers below `range`, sorted; different ones, where there are as many.
std::vector<int64_t> drawn_places(int64_t count, int64_t range, TaskRandom& random);

// Returns the items with separators, and the facts in their order: fact i before item places[i].
std::string interleaved(const std::vector<std::string>& items, const std::vector<std::string>& facts,
                        const std::vector<int64_t>& places, const std::string& separator);

// Returns "a", or "a, b, and c".
std::string listed(const std::vector<std::string>& values);
std::string joined(const std::vector<std::string>& values, const std::string& separator);
// Replaces every `what` in the text.
std::string with(std::string text, std::string_view what, std::string_view by);

// The line of which the plainest haystack of RULER consists.
inline constexpr std::string_view kNoiseLine =
    "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.";

}  // namespace quire
