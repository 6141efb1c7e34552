// The options of the data path: what is read, and how it is cut into batches.
#pragma once

#include <optional>
#include <string>

#include "core/config/config.h"
#include "data/corpus/corpus_stamp.h"
#include "data/tasks/task_config.h"

namespace quire {

enum class Pack : uint8_t {
  pad,     // the rest of a row after the end of a document is padding
  concat,  // the next document follows in the same row, as another segment
};
enum class Sampling : uint8_t { documents, windows, columns };

template <>
struct EnumNames<Pack> {
  static constexpr auto value =
      std::to_array<std::pair<Pack, std::string_view>>({{Pack::pad, "pad"}, {Pack::concat, "concat"}});
};
template <>
struct EnumNames<Sampling> {
  static constexpr auto value = std::to_array<std::pair<Sampling, std::string_view>>(
      {{Sampling::documents, "documents"}, {Sampling::windows, "windows"}, {Sampling::columns, "columns"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"a row reads one document after the other and carries its state along each",
       "all documents form one text, and each row reads a random slice of it; no state is carried",
       "all documents form one text, cut into data.rows columns; each row reads its column from top to bottom"});
};
// Verify::done is not for a configuration.
template <>
struct EnumNames<Verify> {
  static constexpr auto value =
      std::to_array<std::pair<Verify, std::string_view>>({{Verify::once, "once"}, {Verify::always, "always"}});
  static constexpr auto help = std::to_array<std::string_view>(
      {"once, and again after the file has changed; CORPUS.verified remembers it", "each time the corpus is opened"});
};

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

struct DataConfig {
  std::string corpus = {};
  std::vector<MixConfig> mix = {};
  std::string split = "train";
  int64_t subsequence = 512;
  int64_t rows = 8;
  int64_t accumulate = 1;
  Pack pack = Pack::pad;
  Sampling sampling = Sampling::documents;
  bool score_first_token = true;
  Verify verify = Verify::once;
  std::optional<int64_t> vocabulary = {};

  template <class Visitor>
  void fields(Visitor& v) {
    v.field(
        "corpus", corpus,
        {.help = "corpus file that quire prepare has made. A resumed run needs the same corpus, which may have moved",
         .resumable = true,
         .meant = "dataset data_path train_file",
         .path = true});
    v.list("mix", mix,
           "to train on other documents than data.split of data.corpus, as in [{corpus: books.h5, weight: 3}, {task: "
           "passkey, length: 4096}]; data.corpus has the tokenizer and what is evaluated");
    v.field("split", split,
            {.help = "split of the corpus to train on",
             .inapplicable = mix.empty() ? "" : "data.mix says what is trained on"});
    v.field("subsequence", subsequence,
            {.help = "tokens that a row reads in one step (T), inserted ones included",
             .unit = "tokens",
             .min = 1,
             .max = 1 << 24,
             .at_evaluation = true,
             .meant = "seq_len sequence_length seq_length context_length context_size block_size max_seq_len n_ctx "
                      "segment_length bptt"});
    v.field("rows", rows,
            {.help = "rows of the batch: documents that are read side by side in one optimizer step, over all ranks",
             .min = 1,
             .max = 1 << 20,
             .meant = "batch_size batch global_batch_size micro_batch_size per_device_train_batch_size"});
    v.field(
        "accumulate", accumulate,
        {.help = "the rows of a rank are processed in this many blocks, one after the other: less memory, same result",
         .min = 1,
         .max = 1 << 20,
         .resumable = true,
         .meant = "gradient_accumulation_steps grad_accum accumulation_steps accumulate_grad_batches"});
    v.field(
        "pack", pack,
        {.help = "what follows the end of a document in its row: padding until the next step, or the next document"});
    v.field("sampling", sampling, {.help = "how rows are filled; windows and columns reproduce papers"});
    v.field("score_first_token", score_first_token,
            {.help = "the first token of a document counts in the loss and in evaluation, like any other; false: "
                     "nothing is predicted where BOS stands, as where code masks end-of-text between documents. Bits "
                     "per byte are then those of the other bytes",
             .at_evaluation = true});
    v.field("verify", verify, {.help = "when the checksum of the whole corpus is verified", .resumable = true});
    v.field("vocabulary", vocabulary,
            {.help = "number of token ids, for quire bench and quire plan where the corpus does not exist",
             .min = 2,
             .max = 1 << 30});
  }
  void check(ConfigChecker& c) const {
    c.require(mix.empty() || sampling == Sampling::documents, "sampling",
              "data.mix is read by documents; windows and columns read data.split of one corpus as one text");
    c.require(accumulate <= rows, "accumulate", "must not be above data.rows: a block needs a row");
    c.require(
        sampling == Sampling::documents || pack == Pack::pad, "pack",
        "concat is about single documents and has no meaning with data.sampling windows or columns; leave it out");
  }
};

}  // namespace quire
