// Sentences of a plain story, from a small grammar, and names that occur in no word list.
#pragma once

#include <string>
#include <string_view>

#include "data/tasks/task_random.h"

namespace quire {

// Returns "The old ferryman waited beside the bridge. ": a sentence with a space or a newline at its end.
std::string prose_sentence(TaskRandom& random);

// Returns a made-up word of two or three syllables, in lower case: "tarvilo".
std::string made_up_word(TaskRandom& random);
// Returns the probability that such a word begins with `beginning`.
double made_up_word_share(std::string_view beginning);
std::string capitalised(std::string word);

// Returns "grey-harbour": one of prose_label_count() names of things, each with its own number.
int64_t prose_label_count();
std::string prose_label(int64_t number);

// Returns "worn lantern": an adjective and a noun, for definitions.
std::string prose_thing(TaskRandom& random);
// Returns the probability that such a pair begins with `beginning`.
double prose_thing_share(std::string_view beginning);
// Returns "walked slowly toward the river": the end of a sentence about a person.
std::string prose_deed(TaskRandom& random);

}  // namespace quire
