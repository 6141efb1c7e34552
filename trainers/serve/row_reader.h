// Reads documents in the rows of one pool, each row at its own place of its own document.
#pragma once

#include <cstddef>
#include <functional>
#include <limits>
#include <span>
#include <vector>

#include "data/batches/inserter.h"
#include "layers/state/state_pool.h"
#include "trainers/checkpoint/loaded_model.h"

namespace quire {

// A copy of what can be read of a row's state, in main memory.
struct RowState {
  std::vector<NamedTensor> counts;  // [1] each
  std::vector<std::byte> bytes;
};

class RowReader {
 public:
  // The model must outlive this. Throws Error(config) for a model that cannot generate.
  RowReader(LoadedModel& model, int64_t rows);

  int64_t rows() const { return state_.rows(); }
  int64_t subsequence() const { return subsequence_; }
  const Insertion& insertion() const { return inserter_.insertion(); }
  int64_t row_bytes() const { return state_.row_bytes(0, RowExtent::whole); }  // that the state of a row takes here
  // Returns the size of RowState::bytes for these counts. Throws Error(checkpoint) for counts that do not fit the
  // state.
  int64_t bytes_of(const std::vector<NamedTensor>& counts) const { return state_.readable_bytes(getter_of(counts)); }

  // A piece of a document that a row reads in one step.
  struct Part {
    int64_t row = 0;
    int64_t position = 0;  // model positions of the document that were read before
    int64_t count = 0;     // model positions to read, at most subsequence()
    // Tokens from the piece's first one on; those behind the piece are targets only.
    std::span<const int32_t> text = {};
    // Targets from this token of the document on are scored.
    int64_t first_scored = std::numeric_limits<int64_t>::max();
    bool with_logits = false;  // scores come with logits
    bool next = false;         // the logits behind the piece are asked for
  };
  struct Score {
    size_t part = 0;
    int64_t token = 0;                   // of the document: the target, or the token to come
    bool next = false;                   // of Part::next
    double nll = 0;                      // of a target, in nats
    std::span<const float> logits = {};  // over all rows of model.vocabulary; may be empty for a target
  };
  // Reads parts of different rows. `use` receives the scores of a part in the order of tokens.
  void read(std::span<const Part> parts, const std::function<void(const Score&)>& use);

  RowState save(int64_t row) const;
  void load(int64_t row, const RowState& state);

 private:
  static GetTensor getter_of(const std::vector<NamedTensor>& counts);
  struct Request {
    int64_t cell;
    size_t part;
    int64_t token;
    bool next;
    bool logits;
  };
  void put(const Part& part, Batch& batch) const;
  void list_requested(const Part& part, size_t number, const Batch& batch, int64_t first_row,
                      std::vector<Request>& requests) const;
  void read_run(const Batch& batch, int64_t begin, int64_t end, std::span<const Part> parts,
                const std::function<void(const Score&)>& use);

  int64_t subsequence_;
  Network network_;
  Inserter inserter_;
  StatePool state_;
};

}  // namespace quire
