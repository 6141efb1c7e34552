// The documents that a run is trained on in place of data.split.
#pragma once

#include <optional>
#include <string>

#include "core/config/config.h"
#include "data/tasks/task_config.h"

namespace quire {

// An entry of data.mix: documents of a corpus or of a task, to train on in place of data.split of data.corpus.
struct MixConfig {
  std::optional<std::string> corpus;
  TaskConfig task;
  std::string split = "train";
  double weight = 1;

  template <class Visitor>
  void fields(Visitor& v) {
    v.field("corpus", corpus,
            {.help = "corpus file with the tokenizer of data.corpus. Beside a task it gives the text between the "
                     "facts; none: built-in sentences",
             .resumable = true,
             .path = true});
    v.field("split", split,
            {.help = "split of that corpus", .inapplicable = corpus ? "" : "there is no corpus beside it"});
    v.field("weight", weight,
            {.help = "this entry's share of the tokens that are read, relative to the weights of the other entries",
             .min = 0,
             .min_exclusive = true});
    task.fields(v);
  }
  void check(ConfigChecker& c) const {
    c.require(corpus || task.task, "task", "an entry of data.mix needs a corpus or a task");
    task.check(c);
  }
};

}  // namespace quire
