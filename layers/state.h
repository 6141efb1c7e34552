// What rows carry along their documents. A register is small and has a current and a next copy; a log is a ring of
// entries per row with room for one subsequence beyond what can be read, so nothing readable is overwritten before
// commit(). Nothing else in the program remembers anything about a document.
#pragma once

#include <functional>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "core/batch.h"
#include "core/tensor.h"

namespace quire {

struct RegisterId {
  int index = -1;
};
struct LogId {
  int index = -1;
  bool defined() const { return index >= 0; }
};

struct LogOptions {
  // Beginning a document fills the ring with M zero entries instead of emptying it (mask_empty_cache: false).
  bool filled_with_zeros = false;
  // How entries are stored; nothing is the type of the pool, which is what they are read and appended in.
  std::optional<DType> dtype = {};
};

// The names, shapes and types of a model's state, in the order its layers declared them.
class StateLayout {
 public:
  struct Register {
    std::string name;
    Shape shape;  // of one row
  };
  struct Log {
    std::string name;
    Shape entry;     // of one token
    int64_t length;  // entries that can be read: M
    LogOptions options;
  };
  RegisterId add_register(const std::string& name, const Shape& shape);
  LogId add_log(const std::string& name, const Shape& entry, int64_t length, const LogOptions& options = {});
  const std::vector<Register>& registers() const { return registers_; }
  const std::vector<Log>& logs() const { return logs_; }

 private:
  std::vector<Register> registers_;
  std::vector<Log> logs_;
};

class StatePool;

// The state of some rows during one step (one micro-batch). Reads see what was committed; puts and appends become
// visible with the next commit.
class StateView {
 public:
  int64_t rows() const { return end_ - begin_; }
  // Whether row r of this view has a carry-over for its first segment, and what it will write (core/batch.h).
  const RowCarry& carry(int64_t row) const;

  Tensor current(RegisterId id) const;                // [R, ...]
  void put(RegisterId id, const Tensor& next) const;  // rows that write nothing this step keep what they have

  Tensor ring(LogId id) const;                   // [R, C, ...], a copy when stored in another type
  Tensor ring_head(LogId id) const;              // i32 [R]
  std::vector<int64_t> lengths(LogId id) const;  // readable entries per row
  // [R, M, ...]: the readable entries, newest last, zeros before them.
  Tensor gather(LogId id) const;
  // values [R, T, ...]: the carried positions of each row are taken.
  void append(LogId id, const Tensor& values) const;

 private:
  friend class StatePool;
  StateView(StatePool& pool, int64_t begin, int64_t end) : pool_(&pool), begin_(begin), end_(end) {}
  Tensor per_row(const std::function<int64_t(int64_t)>& value) const;
  Tensor stored_ring(LogId id) const;

  StatePool* pool_;
  int64_t begin_;
  int64_t end_;
};

class StatePool {
 public:
  // rows: those of this rank, the first being global row first_row. segment: T, the most a log takes in one step.
  StatePool(StateLayout layout, int64_t rows, int64_t segment, DType dtype, Device device);

  int64_t rows() const { return rows_; }
  int64_t bytes() const;

  // Rows whose document begins are emptied. batch has all rows of the pool.
  void begin_step(const Batch& batch);
  StateView view(int64_t begin, int64_t end) { return {*this, begin, end}; }
  // Makes this step's puts and appends visible. Rows flagged in cleared (non-finite values) are emptied instead.
  void commit(std::span<const uint8_t> cleared = {});

  // Everything that is carried, for checkpoints: names end in .value, .ring, .head, .length; first axis: rows.
  std::vector<NamedTensor> save() const;
  // get(name) returns a tensor of the shape that save() gave. Throws Error(checkpoint) when it does not fit.
  void load(const std::function<Tensor(const std::string&)>& get);

 private:
  friend class StateView;
  struct RegisterData {
    Tensor current;  // [rows, ...]
    Tensor next;
    std::vector<uint8_t> put;  // this step, per row
  };
  struct LogData {
    Tensor ring;  // [rows, C, ...]
    std::vector<int64_t> head;
    std::vector<int64_t> length;
    std::vector<uint8_t> appended;  // this step, per row
    int64_t slots = 0;
  };
  void clear_row(int64_t row);
  static void begin_document(const StateLayout::Log& spec, LogData& log, int64_t row);

  StateLayout layout_;
  int64_t rows_;
  int64_t segment_;
  DType dtype_;
  Device device_;
  std::vector<RegisterData> registers_;
  std::vector<LogData> logs_;
  std::vector<RowCarry> carries_;
};

}  // namespace quire
