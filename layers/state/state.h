// What rows carry along their documents. A register is small and has a current and a next copy; a log is a ring of
// entries per row with room for one subsequence beyond what can be read, so nothing readable is overwritten before
// commit(). Nothing else in the program remembers anything about a document.
#pragma once

#include <filesystem>
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

// Where a log lies: with the model, in host memory that a GPU reads by itself, or in a mapped file.
enum class LogPlace { device, host, file };

struct LogOptions {
  // Beginning a document fills the ring with M zero entries instead of emptying it (mask_empty_cache: false).
  bool filled_with_zeros = false;
  // How entries are stored; nothing is the type of the pool, which is what they are read and appended in.
  std::optional<DType> dtype = {};
  LogPlace place = LogPlace::device;
  // What a step appends waits outside the ring for the commit, so that the ring has no more slots than entries.
  bool waits = false;
  // The step in which each entry was made is kept.
  bool ages = false;
};

// Consecutive entries of a log that were made in one step (a count of commits).
struct LogRun {
  int64_t step;
  int64_t count;
};

inline constexpr const char* kNoFilesOnGpu =
    "a GPU does not read a memory in a file; use place: host or run.device: cpu";

// The names, shapes and types of a model's state, in the order its layers declared them.
class StateLayout {
 public:
  struct Register {
    std::string name;
    Shape shape;  // of one row
    bool wide;    // f32 where the model computes in bf16: counts and running means
  };
  struct Log {
    std::string name;
    Shape entry;     // of one token
    int64_t length;  // entries that can be read: M
    LogOptions options;
  };
  RegisterId add_register(const std::string& name, const Shape& shape, bool wide = false);
  LogId add_log(const std::string& name, const Shape& entry, int64_t length, const LogOptions& options = {});
  const std::vector<Register>& registers() const { return registers_; }
  const std::vector<Log>& logs() const { return logs_; }
  bool has_files() const;  // whether a log lies in one

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
  int64_t first_row() const { return begin_; }  // of the pool
  // Whether row r of this view has a carry-over for its first segment, and what it will write (core/batch.h).
  const RowCarry& carry(int64_t row) const;

  Tensor current(RegisterId id) const;                // [R, ...]
  void put(RegisterId id, const Tensor& next) const;  // rows that write nothing this step keep what they have

  Tensor ring(LogId id) const;                   // [R, C, ...], a copy when stored in another type
  Tensor stored_ring(LogId id) const;            // as it is stored
  Tensor ring_head(LogId id) const;              // i32 [R]
  std::vector<int64_t> lengths(LogId id) const;  // readable entries per row
  // [R, M, ...]: the readable entries, newest last, zeros before them.
  Tensor gather(LogId id) const;
  // values [R, T, ...]: the carried positions of each row are taken.
  void append(LogId id, const Tensor& values) const;
  // Logs that wait only: count[r] entries of row r from begin[r] on instead, `stride` apart. All such logs of a layer
  // take as many.
  void append(LogId id, const Tensor& values, std::span<const int64_t> begin, std::span<const int64_t> count,
              int64_t stride = 1) const;
  // Entries first[r], ..., first[r] + count[r] - 1, counted from the oldest readable one, become the last count[r] of
  // values [R, N, ...] at the commit; their age is that of entries made in this step. Rows that begin a document
  // meanwhile forget it.
  void replace(LogId id, const Tensor& values, std::span<const int64_t> first, std::span<const int64_t> count) const;
  // [R, N, ...], as stored: entries first[r], ..., first[r] + count[r] - 1 from the oldest, the last one at the end.
  Tensor gather(LogId id, int64_t entries, std::span<const int64_t> first, std::span<const int64_t> count) const;

  // Of logs with ages: the commits since each entry of a row was made, 1 for those of the last step, as runs from the
  // oldest entry on.
  std::vector<LogRun> ages(LogId id, int64_t row) const;
  // Of logs with ages: entries that the row's document has written so far, and the number of documents before it.
  int64_t written(LogId id, int64_t row) const;
  int64_t document(LogId id, int64_t row) const;
  // How many of the newest entries are at most that many commits old.
  int64_t entries_within(LogId id, int64_t row, int64_t commits) const;

  // Some rows of this view, [begin, end) of its own.
  StateView block(int64_t begin, int64_t end) const { return {*pool_, begin_ + begin, begin_ + end}; }
  // Gives back the main memory that reading this view's part of a log in a file has taken.
  void forget_pages(LogId id) const;

 private:
  friend class StatePool;
  StateView(StatePool& pool, int64_t begin, int64_t end) : pool_(&pool), begin_(begin), end_(end) {}
  Tensor per_row(const std::function<int64_t(int64_t)>& value) const;

  StatePool* pool_;
  int64_t begin_;
  int64_t end_;
};

class StatePool {
 public:
  // rows: those of this rank, the first being global row first_row. segment: T, the most a log takes in one step.
  // scratch: folder of logs that lie in files; empty is the folder for temporary files.
  StatePool(StateLayout layout, int64_t rows, int64_t segment, DType dtype, Device device,
            const std::filesystem::path& scratch = {});

  int64_t rows() const { return rows_; }
  // In main memory or on the device; of logs that lie elsewhere.
  int64_t bytes() const { return bytes(LogPlace::device) + bytes(LogPlace::host); }
  int64_t bytes(LogPlace place) const;

  // Rows whose document begins are emptied. batch has all rows of the pool.
  void begin_step(const Batch& batch);
  StateView view(int64_t begin, int64_t end) { return {*this, begin, end}; }
  // Makes this step's puts and appends visible. Rows flagged in cleared (non-finite values) are emptied instead.
  void commit(std::span<const uint8_t> cleared = {});

  // Everything that is carried, for checkpoints: names end in .value, .ring, .head, .length, .ages, .written; first
  // axis: rows.
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
  // For rows [begin, ...) of the pool: values[r, from[r] + j stride] goes to entry to[r] + j (replacements) or to the
  // end.
  struct Waiting {
    int64_t begin;
    Tensor values;
    std::vector<int64_t> from, to, count;
    int64_t stride = 1;
  };
  struct LogData {
    Tensor ring;  // [rows, C, ...]
    std::vector<int64_t> head;
    std::vector<int64_t> length;
    std::vector<int64_t> taken;             // entries of this step per row; -1: none were offered
    std::vector<int64_t> written;           // per row, of its document
    std::vector<int64_t> document;          // per row: documents begun so far, in this process
    std::vector<std::vector<LogRun>> runs;  // per row, oldest first; the step is that of clock_
    std::vector<Waiting> appends, replacements;
    int64_t slots = 0;
  };
  Tensor make_ring(const StateLayout::Log& spec, int64_t slots, const std::filesystem::path& scratch) const;
  void write_waiting(const StateLayout::Log& spec, LogData& log);
  void advance_ages(const StateLayout::Log& spec, LogData& log, int64_t row, int64_t added) const;
  void clear_row(int64_t row);
  DType dtype_of(const StateLayout::Register& spec) const { return spec.wide ? wide_type(dtype_) : dtype_; }
  static void begin_document(const StateLayout::Log& spec, LogData& log, int64_t row);

  StateLayout layout_;
  int64_t rows_;
  int64_t segment_;
  DType dtype_;
  Device device_;
  std::vector<RegisterData> registers_;
  std::vector<LogData> logs_;
  std::vector<RowCarry> carries_;
  int64_t clock_ = 0;  // commits
};

}  // namespace quire
