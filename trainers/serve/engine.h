// Reads and continues the documents of many requests at once: one row each, one batch a step. A document is cut where
// quire generate and quire eval cut it, so that its logits are the same.
#pragma once

#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "trainers/serve/choice.h"

namespace quire {

struct EngineLimits {
  int64_t rows = 32;
  int64_t queue = 256;                // choices that wait for a row
  int64_t tokens = int64_t{1} << 25;  // of the texts that wait or are read
};

class Engine {
 public:
  // The model must outlive this.
  Engine(LoadedModel& model, const EngineLimits& limits);

  // Takes all of these choices, or none when the queue has no room for them.
  bool submit(const std::vector<std::shared_ptr<Choice>>& choices);
  // Works until stop(); the thread that runs this computes. Choices that have not ended by then end with an error.
  void run();
  void stop();

  // The largest number of tokens of a document; nothing: any.
  std::optional<int64_t> room() const { return room_; }
  int64_t rows() const { return reader_.rows(); }
  const RowReader& reader() const { return reader_; }

  struct Load {
    int64_t waiting = 0;
    int64_t active = 0;
    int64_t tokens_read = 0;
    int64_t tokens_generated = 0;
    int64_t steps = 0;
  };
  Load load() const;

 private:
  // A document in a row.
  struct Reading {
    std::shared_ptr<Choice> choice;
    std::vector<int32_t> text;  // what is to be read
    int64_t base = 0;           // tokens of the document before the text
    int64_t position = 0;       // model positions of the document that were read
    int64_t end = 0;            // model positions to which the text is read
    bool continues = false;     // the request's text was read
    std::vector<float> logits;  // at the last position that was read; empty when not computed
  };
  using Row = std::unique_ptr<Reading>;

  bool wait();
  void admit();
  std::shared_ptr<Choice> take();
  Row begin(const std::shared_ptr<Choice>& choice, int64_t row);
  void drop_cancelled();
  void step();
  RowReader::Part part_of(int64_t row) const;
  void read(const std::vector<RowReader::Part>& parts);
  void note(Reading& reading, const RowReader::Score& score) const;
  void text_is_read(int64_t row);  // what it throws ends the choice
  void go_on(int64_t row);
  void start_siblings(int64_t row);
  void extend();
  void add_token(int64_t row, int32_t id);
  int64_t uncut_end(const Reading& reading) const;
  void finish(int64_t row, Finish how);
  void end(Choice& choice);
  void fail_row(int64_t row, const std::string& error, int status = 500);
  void fail_choice(const std::shared_ptr<Choice>& choice, const std::string& error, int status = 500);

  LoadedModel& model_;
  const Tokenizer& tokenizer_;
  EngineLimits limits_;
  std::optional<int64_t> room_;
  RowReader reader_;
  std::vector<Row> active_;  // by row

  mutable std::mutex mutex_;  // of what follows
  std::condition_variable changed_;
  std::deque<std::shared_ptr<Choice>> queue_;
  int64_t waiting_ = 0;      // choices, with siblings
  int64_t text_tokens_ = 0;  // of the choices that wait or are read
  bool stopping_ = false;

  std::atomic<int64_t> rows_in_use_{0};
  std::atomic<int64_t> tokens_read_{0};
  std::atomic<int64_t> tokens_generated_{0};
  std::atomic<int64_t> steps_{0};
};

}  // namespace quire
