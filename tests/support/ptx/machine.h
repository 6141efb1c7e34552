// Runs kernels as nvcc has compiled them: PTX (PTX ISA 9.0), warp by warp, on the host. What plain C++ cannot show is
// run here: inline assembly with its constraints, the order of memory accesses that the compiler has made, vector
// loads.
//
// A warp's lanes have program counters of their own; those that are furthest behind go on first, which brings lanes
// together where branches meet. Instructions of whole warps wait for all lanes they name. Each rule of the ISA that a
// kernel breaks ends the program with one line on stderr that names kernel and line of the PTX file.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace quire::ptx {

inline constexpr int kLanes = 32;
inline constexpr uint32_t kAll = ~0U;
// The offset where shared memory begins in its window; the first KB is the system's.
inline constexpr uint32_t kSharedBegin = 0x400;

struct Warp;
struct Instruction;
using Operation = void(Warp& warp, const Instruction& instruction, uint32_t lanes);
using Run = Operation*;

enum class Space : uint8_t { generic, shared };

// Says what becomes of lanes behind an instruction.
enum class Flow : uint8_t { next, branch, end, warp, block };

struct Instruction {
  Run run = nullptr;
  Flow flow = Flow::next;
  bool guard_negated = false;
  int32_t guard = -1;       // a predicate; -1: none
  int32_t target = -1;      // of a branch
  int64_t number = 0;       // added to an address
  uint8_t variant = 0;      // AtomicKind, ShuffleKind, VoteKind or Carry
  bool transposed = false;  // a matrix
  // The following members describe an access to memory.
  Space space = Space::generic;
  uint8_t bytes = 0;           // of an element
  uint8_t count = 1;           // elements
  uint8_t address_bytes = 8;   // width of the address register
  uint8_t register_bytes = 0;  // width of the data register
  bool is_signed = false;
  std::vector<int32_t> operands;  // places in a warp's registers, in bytes
  int32_t line = 0;
};

// A value that lanes find in a register when a block begins.
enum class Special : uint8_t { tid_x, tid_y, tid_z, ctaid_x, ctaid_y, ctaid_z, laneid, lanemask_le, local };
struct SpecialRegister {
  Special what;
  int32_t place;
  uint64_t offset;  // for local memory: added to the begin of the thread's own
};
struct Constant {
  int32_t place;
  int bytes;
  uint64_t value;
};

struct Kernel {
  std::string name;
  std::string file;
  std::vector<Instruction> code;
  size_t register_bytes = 0;  // bytes per warp
  std::vector<Constant> constants;
  std::vector<SpecialRegister> specials;
  std::vector<Constant> sizes;  // value: 0 to 2 blockDim, 3 to 5 gridDim
  size_t local_bytes = 0;       // bytes per thread
  size_t shared_bytes = 0;      // its own arrays
  size_t max_threads = 0;       // limit of threads in a block; 0: 1024
  // Parameters: [offset, bytes) in `parameter_memory`, which instructions name by address.
  std::vector<std::pair<size_t, size_t>> parameters;
  std::unique_ptr<unsigned char[]> parameter_memory;
  std::vector<std::unique_ptr<unsigned char[]>> arrays;  // of the module

  // Returns where dynamic shared memory begins, after the kernel's own arrays.
  size_t dynamic_begin() const;
};

// Reads a kernel of a module. Throws std::runtime_error with the line that it does not understand.
std::unique_ptr<Kernel> read_kernel(const std::string& file, const std::string& name);

struct PendingCopy {
  int lane;
  unsigned char* to;
  const unsigned char* from;  // null: zeros
};

// The last accesses to four bytes of shared memory. A thread is ordered after another one by barriers of the block, and
// within a warp by bar.warp.sync.
struct Word {
  int32_t writer = -1;         // thread
  int64_t written = -1;        // barriers of the block before
  int64_t writer_synced = -1;  // bar.warp.sync of its warp before
  int32_t write_line = 0;
  bool in_parts = false;  // by several threads
  int32_t reader = -1;    // the last thread
  int64_t read = -1;
  int64_t reader_synced = -1;
  int32_t other_reader = -1;  // the last one of another warp than the reader's
  int64_t other_read = -1;
};

struct Block {
  const Kernel* kernel = nullptr;
  std::vector<Warp> warps;
  std::vector<unsigned char> shared;
  std::vector<unsigned char> local;
  uint32_t shared_bytes = 0;
  std::vector<Word> words;  // who wrote and read each word of shared memory
  int64_t barriers = 0;
  uint32_t sizes[6] = {};
};

struct Warp {
  Block* block = nullptr;
  int number = 0;
  std::vector<unsigned char> registers;
  int32_t at[kLanes] = {};  // program counters
  uint32_t alive = 0;       // has not returned
  uint32_t waits = 0;       // for other lanes
  const Instruction* current = nullptr;
  uint32_t carry = 0;
  int64_t synchronized = 0;  // bar.warp.sync that it has passed
  std::vector<PendingCopy> copies;
};

template <typename T>
T* lanes_of(Warp& warp, int32_t place) {
  return reinterpret_cast<T*>(warp.registers.data() + place);
}
inline uint32_t& predicate(Warp& warp, int32_t place) {
  return *lanes_of<uint32_t>(warp, place);
}

[[noreturn]] void give_up(const Warp& warp, const std::string& what);

// Shared memory at an address of its window. What threads do with it is noted, and ends the program where nothing
// orders two of them.
unsigned char* shared(Warp& warp, uint32_t address, size_t bytes);
void note_read(Warp& warp, int lane, const unsigned char* at, size_t bytes);
void note_write(Warp& warp, int lane, const unsigned char* at, size_t bytes);

// Runs all blocks of a grid, one after the other. Parameters lie in the kernel's memory for them.
void run_grid(const Kernel& kernel, const uint32_t (&grid)[3], const uint32_t (&threads)[3], size_t dynamic_bytes);
// Runs instructions until the warp has ended or waits at the block's barrier.
void run_warp(Warp& warp);

// The function of an instruction on registers, by its whole name (arithmetic.cpp); null: there is none.
Run arithmetic(const std::string& name);
// Flags of sums with a carry.
enum Carry : uint8_t { kCarryRead = 1, kCarryWritten = 2, kDifference = 4, kUpperHalf = 8 };
Operation run_nothing;

// Memory (memory.cpp).
enum class AtomicKind : uint8_t { add, max };
Operation load, store, atomic, window_to_address, address_to_window, copy_later, await_copies;

// Whole warps (warp_operations.cpp) and tensor cores (tensor_cores.cpp).
enum class ShuffleKind : uint8_t { up, down, bfly, idx };
enum class VoteKind : uint8_t { all, any, ballot };
Operation shuffle, vote, sync_warp, split, join, trap;
Operation load_matrices, multiply_add;

}  // namespace quire::ptx
