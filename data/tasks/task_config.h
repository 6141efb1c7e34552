// The description of a generated document. Its keys are those of an entry of data.mix, of quire prepare --set and quire
// needle --set.
#pragma once

#include <string>

#include "core/config/config.h"

namespace quire {

enum class TaskKind { passkey, multikey, hops, recall, question };
enum class Alphabet { digits, letters, tokens };
enum class FactKind { names, numbers, definitions, signs };
enum class TaskLoss { all, answer };

template <>
struct EnumNames<Alphabet> {
  static constexpr auto value = std::to_array<std::pair<Alphabet, std::string_view>>(
      {{Alphabet::digits, "digits"}, {Alphabet::letters, "letters"}, {Alphabet::tokens, "tokens"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"0 to 9", "a to z", "any token of the tokenizer, as published (Hu et al. 2025, appendix D)"});
};
template <>
struct EnumNames<FactKind> {
  static constexpr auto value =
      std::to_array<std::pair<FactKind, std::string_view>>({{FactKind::names, "names"},
                                                            {FactKind::numbers, "numbers"},
                                                            {FactKind::definitions, "definitions"},
                                                            {FactKind::signs, "signs"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"\"Tarvil Korrin\": the surname is recalled", "\"Tarvil (4827)\": the number",
       "\"the brimmet, that worn lantern,\": what it is",
       "\"number 4; letter K; mark #;\": three that every document has, so that a small model soon learns to look them "
       "up"});
};
template <>
struct EnumNames<TaskLoss> {
  static constexpr auto value =
      std::to_array<std::pair<TaskLoss, std::string_view>>({{TaskLoss::all, "all"}, {TaskLoss::answer, "answer"}});
  static constexpr auto help =
      std::to_array<std::string_view>({"everything up to the end of the answer, as published", "the answer only"});
};

struct TaskConfig {
  std::optional<std::string> task = {};
  int64_t length = 4096;
  std::optional<int64_t> shortest = {};
  int64_t key = 5;
  Alphabet alphabet = Alphabet::digits;
  int64_t keys = 4;
  int64_t align = 1;
  std::optional<double> depth = {};
  TaskLoss loss = TaskLoss::all;
  std::vector<FactKind> kinds{FactKind::names, FactKind::numbers, FactKind::definitions};
  int64_t facts = 8;
  int64_t mentions = 4;
  int64_t nearest = 512;
  int64_t farthest = 1024;
  double near_share = 0.3;

  // Returns the kind of `task`; nothing when it is none or not a task. "hops:3" has three hops.
  std::optional<TaskKind> kind() const;
  int64_t hops() const;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("task", task,
            {.help = "task whose documents are made while training: passkey, multikey, hops:N, recall, or one of RULER "
                     "or bAbI (data/TASKS.md), as niah_single_1, vt or babi_1; none: the documents of the corpus"});
    const std::optional<TaskKind> is = kind();
    const std::string_view any = task ? "" : "it belongs to a task";
    const bool has_question = is && *is == TaskKind::question;
    const std::string_view asked = is && *is == TaskKind::recall ? "task recall has no needles" : any;
    const std::string_view needles = has_question ? "a task of RULER or bAbI has what was published" : asked;
    const std::string_view several = is && *is == TaskKind::passkey ? "task passkey has one key" : needles;
    const std::string_view place = is && *is == TaskKind::hops ? "task hops spreads its needles" : needles;
    const std::string_view recall = is && *is != TaskKind::recall ? "only task recall has it" : any;
    v.field("length", length,
            {.help = "length of a document, BOS included",
             .unit = "tokens",
             .min = 2,
             .max = 1 << 30,
             .inapplicable = any});
    v.field("shortest", shortest,
            {.help = "lengths are drawn from shortest to length, uniformly in their logarithm; none: all documents "
                     "have `length`",
             .unit = "tokens",
             .min = 2,
             .max = 1 << 30,
             .inapplicable = any});
    v.field("key", key, {.help = "number of symbols in a key", .min = 1, .max = 64, .inapplicable = needles});
    v.field("alphabet", alphabet, {.help = "symbols that keys consist of", .inapplicable = needles});
    v.field("keys", keys,
            {.help = "multikey: number of needles, of which one is asked for; hops: number of chains",
             .min = 1,
             .max = 256,
             .inapplicable = several});
    v.field("align", align,
            {.help = "length of the model's chunks. The question then ends with the first token of the last chunk, "
                     "which holds the answer; 1: the answer ends the document",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 20,
             .inapplicable = asked});
    v.field("depth", depth,
            {.help = "place of the needle: 0 is the beginning of the document, 1 is just before the question; none: a "
                     "random place",
             .min = 0,
             .max = 1,
             .inapplicable = place});
    v.field("loss", loss, {.help = "which tokens count for the loss", .inapplicable = asked});
    v.field("kinds", kinds, {.help = "kinds of facts; all kinds are equally frequent", .inapplicable = recall});
    v.field("facts", facts,
            {.help = "number of facts in use at a time; a new fact begins when another was said for the last time",
             .min = 1,
             .max = 4096,
             .inapplicable = recall});
    v.field("mentions", mentions,
            {.help = "how often a fact comes back; signs come back until the document ends",
             .min = 1,
             .max = 4096,
             .inapplicable = recall});
    v.field("nearest", nearest,
            {.help = "a fact counts as recalled when it was last said at least this many tokens before",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 28,
             .inapplicable = recall});
    v.field("farthest", farthest,
            {.help = "a fact comes back after `nearest` to `farthest` tokens, at the next end of a sentence",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 28,
             .inapplicable = recall});
    v.field(
        "near_share", near_share,
        {.help = "share of mentions that come back within nearest/8 tokens instead; these are not marked as recalled",
         .min = 0,
         .max = 1,
         .inapplicable = recall});
  }
  void check(ConfigChecker& c) const;
};

}  // namespace quire
