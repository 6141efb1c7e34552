// Sentences that read like a plain story, from a small grammar, and names that no word list has.
#pragma once

#include <string>
#include <string_view>

#include "data/tasks/task_random.h"

namespace quire {

// "The old ferryman waited beside the bridge. ": with a space or a newline at its end.
std::string prose_sentence(TaskRandom& random);

// A made-up word of two or three syllables, in lower case: "tarvilo".
std::string made_up_word(TaskRandom& random);
// The probability that such a word begins with this.
double made_up_word_share(std::string_view beginning);
std::string capitalised(std::string word);

// "grey-harbour": one of prose_label_count() names of things; they are drawn apart by number.
int64_t prose_label_count();
std::string prose_label(int64_t number);

// "worn lantern": an adjective and a noun, for definitions.
std::string prose_thing(TaskRandom& random);
// The probability that one begins with this.
double prose_thing_share(std::string_view beginning);
// "walked slowly toward the river": the end of a sentence about a person.
std::string prose_deed(TaskRandom& random);

}  // namespace quire
