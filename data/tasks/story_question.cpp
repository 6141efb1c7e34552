// bAbI's tasks 1 to 5: simulated stories about people, places and things, whose facts lie between sentences of a book.
#include <algorithm>
#include <array>
#include <map>

#include "core/check.h"
#include "data/tasks/question.h"
#include "data/tasks/question_parts.h"

namespace quire {

namespace {

using Names = std::vector<std::string>;

const Names& places() {
  static const Names names{"bathroom", "bedroom", "garden", "hallway", "kitchen", "office"};
  return names;
}
const Names& things() {
  static const Names names{"apple", "football", "milk"};
  return names;
}

constexpr auto kMoves =
    std::to_array<std::string_view>({"went to", "journeyed to", "travelled to", "moved to", "went back to"});
constexpr auto kTakes = std::to_array<std::string_view>({"got", "took", "grabbed", "picked up"});
constexpr auto kDrops = std::to_array<std::string_view>({"dropped", "put down", "left"});
constexpr auto kGives = std::to_array<std::string_view>({"gave", "passed", "handed"});

struct Story {
  Names facts = {};
  std::string asked = {};
  std::string answer = {};
  Names labels = {};
};

// This says where people are and who holds what.
class World {
 public:
  World(const Names& people, TaskRandom& random, Names& facts) : people_(people), random_(random), facts_(facts) {}

  void move() { move(random_.one_of(people_)); }
  void move(const std::string& person) {
    std::string place = random_.one_of(places());
    while (place == place_[person]) place = random_.one_of(places());
    say(fmt::format("{} {} the {}.", person, random_.one_of(kMoves), place));
    place_[person] = place;
    for (const std::string& thing : things()) {
      if (holder_[thing] == person) been_[thing].push_back(place);
    }
  }

  // Lets somebody take a thing or drop one; a move, where that cannot be.
  void handle() {
    const std::string& person = random_.one_of(people_);
    const std::string& thing = random_.one_of(things());
    if (holder_[thing] == person) return drop(person, thing);
    const bool is_here = been_[thing].empty() || been_[thing].back() == place_[person];
    if (!holder_[thing].empty() || place_[person].empty() || !is_here) return move();
    take(person, thing);
  }

  void take(const std::string& person, const std::string& thing) {
    const std::string_view verb = random_.one_of(kTakes);
    say(fmt::format("{} {} the {}{}.", person, verb, thing, maybe_there()));
    holder_[thing] = person;
    if (been_[thing].empty() && !place_[person].empty()) been_[thing].push_back(place_[person]);
  }
  void drop(const std::string& person, const std::string& thing) {
    const std::string_view verb = random_.one_of(kDrops);
    say(fmt::format("{} {} the {}{}.", person, verb, thing, maybe_there()));
    holder_[thing].clear();
  }
  void give(const std::string& from, const std::string& thing, const std::string& to) {
    say(fmt::format("{} {} the {} to {}.", from, random_.one_of(kGives), thing, to));
    holder_[thing] = to;
  }

  const std::string& place_of(const std::string& person) { return place_[person]; }
  const std::string& holder_of(const std::string& thing) { return holder_[thing]; }
  // Returns the places where a thing was, without those before it was first taken.
  const Names& been(const std::string& thing) { return been_[thing]; }

 private:
  void say(std::string fact) { facts_.push_back(std::move(fact)); }
  std::string_view maybe_there() { return random_.below(2) == 0 ? " there" : ""; }

  const Names& people_;
  TaskRandom& random_;
  Names& facts_;
  std::map<std::string, std::string> place_;
  std::map<std::string, std::string> holder_;
  std::map<std::string, Names> been_;
};

const Names& people_of(int64_t task) {
  static const Names movers{"John", "Mary", "Sandra", "Daniel"};
  static const Names givers{"Bill", "Fred", "Jeff", "Mary"};
  return task == 5 ? givers : movers;
}

Story where_is_person(TaskRandom& random) {
  Story story{.labels = places()};
  World world(people_of(1), random, story.facts);
  const int64_t facts = 2 * (1 + random.below(5));
  for (int64_t i = 0; i < facts; ++i) world.move();
  std::string person = random.one_of(people_of(1));
  while (world.place_of(person).empty()) person = random.one_of(people_of(1));
  story.asked = fmt::format("Where is {}?", person);
  story.answer = world.place_of(person);
  return story;
}

// `visited`: at how many places the thing was, of which the last (1) or the one before it (2) is asked for.
Story where_is_thing(size_t visited, TaskRandom& random) {
  Story story{.labels = places()};
  World world(people_of(2), random, story.facts);
  const int64_t facts = visited == 1 ? 4 + random.below(9) : 8 + random.below(13);
  std::string thing = random.one_of(things());
  while (static_cast<int64_t>(story.facts.size()) < facts || world.been(thing).size() < visited) {
    if (random.below(2) == 0) {
      world.move();
    } else {
      world.handle();
    }
    if (world.been(thing).size() < visited) thing = random.one_of(things());
  }
  const Names& been = world.been(thing);
  story.answer = been[been.size() - visited];
  story.asked = visited == 1 ? fmt::format("Where is the {}?", thing)
                             : fmt::format("Where was the {} before the {}?", thing, been.back());
  return story;
}

// Three places in a row; only the one in the middle is asked about, since more than one lies in each direction of the
// others.
Story where_is_place(TaskRandom& random) {
  Story story{.labels = places()};
  Names row = places();
  shuffle(row, random);
  const bool vertical = random.below(2) == 0;
  const std::array<std::string, 2> directions{vertical ? "north" : "east", vertical ? "south" : "west"};
  const auto fact = [&](const std::string& first, const std::string& second) {
    const bool forward = random.below(2) == 0;
    return fmt::format("The {} is {} of the {}.", forward ? first : second, directions[forward ? 0 : 1],
                       forward ? second : first);
  };
  story.facts = {fact(row[0], row[1]), fact(row[1], row[2])};
  shuffle(story.facts, random);
  const int64_t direction = random.below(2);
  const bool from = random.below(2) == 0;
  const std::string& word = directions[static_cast<size_t>(direction)];
  story.asked =
      from ? fmt::format("What is {} of the {}?", word, row[1]) : fmt::format("What is the {} {} of?", row[1], word);
  story.answer = row[from == (direction == 0) ? 0 : 2];
  return story;
}

// Other facts than gifts: moves, and things that are taken or dropped.
void go_on(World& world, int64_t facts, TaskRandom& random) {
  for (int64_t i = 0; i < facts; ++i) {
    if (random.below(3) == 0) {
      world.handle();
    } else {
      world.move();
    }
  }
}

Story who_gave(TaskRandom& random) {
  Story story;
  Names people = people_of(5);
  Names objects = things();
  World world(people_of(5), random, story.facts);
  shuffle(people, random);
  shuffle(objects, random);
  const std::string& from = people[0];
  const std::string& to = people[1];
  const std::string& thing = objects[0];
  if (random.below(2) == 0) {  // an earlier gift of something else, from another to a third
    world.take(people[2], objects[1]);
    world.give(people[2], objects[1], random.below(2) == 0 ? from : people[3]);
  }
  go_on(world, random.below(4), random);
  if (world.holder_of(thing).empty()) world.take(from, thing);
  const std::string holder = world.holder_of(thing);
  const std::string receiver = holder == to ? from : to;
  world.give(holder, thing, receiver);
  const std::array<std::string, 5> asked{
      fmt::format("Who gave the {}?", thing), fmt::format("Who gave the {} to {}?", thing, receiver),
      fmt::format("Who received the {}?", thing), fmt::format("Who did {} give the {} to?", holder, thing),
      fmt::format("What did {} give to {}?", holder, receiver)};
  const int64_t which = random.below(5);
  story.asked = asked[static_cast<size_t>(which)];
  story.answer = which < 2 ? holder : which < 4 ? receiver : thing;
  story.labels = {"bill", "fred", "jeff", "mary", "apple", "football", "milk"};
  go_on(world, random.below(6), random);
  return story;
}

Story story_of(int64_t task, TaskRandom& random) {
  switch (task) {
    case 1:
      return where_is_person(random);
    case 2:
    case 3:
      return where_is_thing(static_cast<size_t>(task - 1), random);
    case 4:
      return where_is_place(random);
    case 5:
      return who_gave(random);
    default:
      fail(ErrorKind::internal, "bAbI: no task {}", task);
  }
}

class StoryQuestion : public QuestionKind {
 public:
  explicit StoryQuestion(int64_t task) : task_(task) {}
  int64_t min_units() const override { return 0; }
  bool reads_background() const override { return true; }
  int64_t reserve() const override { return 20; }

  Question make(const DocumentKey& key, const QuestionSize& size, BackgroundText& background) const override {
    TaskRandom random(key, "data.tasks.babi");
    Story story = story_of(task_, random);
    TaskRandom between(key, "data.tasks.babi_places");
    const std::vector<std::string> sentences = background.sentences(size.units);
    std::vector<int64_t> places;
    for (size_t i = 0; i < story.facts.size(); ++i) {
      places.push_back(between.below(static_cast<int64_t>(sentences.size()) + 1));
    }
    std::sort(places.begin(), places.end());
    Question question;
    question.prompt =
        fmt::format("{}\nQuestion: {}\nAnswer:", interleaved(sentences, story.facts, places, " "), story.asked);
    question.answer = fmt::format(" {}.", story.answer);
    question.references = {story.answer};
    question.asked = std::move(story.asked);
    question.labels = std::move(story.labels);
    return question;
  }

 private:
  int64_t task_;
};

}  // namespace

std::unique_ptr<QuestionKind> make_story_question(int64_t number) {
  return std::make_unique<StoryQuestion>(number);
}

}  // namespace quire
