// Lists what the layers of a model declare to carry along their documents: registers, logs of entries, and what is
// derived from them. The state pool makes one of each for every row.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/dtype.h"
#include "core/shape.h"
#include "layers/state/derived_state.h"

namespace quire {

struct RegisterId {
  int index = -1;
  bool defined() const { return index >= 0; }
};
struct LogGroupId {
  int index = -1;
  bool defined() const { return index >= 0; }
};
struct LogId {
  int index = -1;
  LogGroupId group = {};
  bool defined() const { return index >= 0; }
};
// T is the class of what is derived.
template <typename T>
struct DerivedId {
  int index = -1;
  bool defined() const { return index >= 0; }
};

struct RegisterOptions {
  // Without a value: the type of the pool.
  std::optional<DType> dtype = {};
  // f32 where the model computes in bf16: counts and running means.
  bool wide = false;
};

// Says where a log lies: with the model, in host memory that a GPU reads by itself, or in a mapped file.
enum class LogPlace { device, host, file };

struct LogGroupOptions {
  // Tokens per entry: 1 for tokens, more for blocks and chunks.
  int64_t grain = 1;
  // Beginning a document fills the logs with zero entries instead of emptying them (carry.mask_empty: false).
  bool filled_with_zeros = false;
  LogPlace place = LogPlace::device;
  // Appended entries wait outside the ring for the commit, so that the ring has no more slots than entries.
  bool waits = false;
  // Also keeps the step in which each entry was made.
  bool ages = false;
};

inline constexpr const char* kNoFilesOnGpu = "a GPU does not read state in a file; use place: host or run.device: cpu";

// The names, shapes and types of a model's state, in the order its layers declared them.
class StateLayout {
 public:
  struct Register {
    std::string name;
    Shape shape;  // of one row
    RegisterOptions options;
  };
  // Logs that move together: each append gives every one of them the same number of entries.
  struct LogGroup {
    std::string name;
    int64_t length;  // entries that can be read
    LogGroupOptions options;
  };
  struct Log {
    std::string name;  // group.log
    LogGroupId group;
    Shape entry;
    // The type in which entries are stored; without a value it is the type of the pool, which they are read and
    // appended in.
    std::optional<DType> dtype;
  };
  using MakeDerived = std::function<std::unique_ptr<DerivedState>()>;

  RegisterId add_register(const std::string& name, const Shape& shape, const RegisterOptions& options = {});
  LogGroupId add_log_group(const std::string& name, int64_t length, const LogGroupOptions& options = {});
  LogId add_log(LogGroupId group, const std::string& name, const Shape& entry, std::optional<DType> dtype = {});
  // `make` is called for a row when its derived state is first used.
  template <typename T>
  DerivedId<T> add_derived(std::function<std::unique_ptr<T>()> make) {
    derived_.emplace_back(std::move(make));
    return {static_cast<int>(derived_.size()) - 1};
  }

  const std::vector<Register>& registers() const { return registers_; }
  const std::vector<LogGroup>& log_groups() const { return groups_; }
  const std::vector<Log>& logs() const { return logs_; }
  std::string first_in_file() const;  // the name of a group that lies in a file; empty when none does
  const std::vector<MakeDerived>& derived() const { return derived_; }

 private:
  std::vector<Register> registers_;
  std::vector<LogGroup> groups_;
  std::vector<Log> logs_;
  std::vector<MakeDerived> derived_;
};

}  // namespace quire
