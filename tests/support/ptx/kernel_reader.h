// Reads the text of a kernel: names and statements (kernel_reader.cpp), and what instructions do (decode.cpp).
#pragma once

#include <map>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "tests/support/ptx/machine.h"

namespace quire::ptx {

// The meaning of a name.
struct Symbol {
  enum class Kind { value, predicate, shared, memory, local } kind = Kind::value;
  int bytes = 0;      // of a register's value
  int32_t place = 0;  // place of a register
  // An offset in the window of shared memory (0: where dynamic memory begins, or the module's own array will), an
  // address, or an offset in a thread's local memory.
  uint64_t at = 0;
  // For an array of the module in shared memory.
  size_t module_bytes = 0;
  size_t module_alignment = 0;
};

struct Function {
  std::string parameters, result, body;
  int line = 0;
};

// Adds to a kernel what its text says. Throws std::runtime_error with the line that it does not understand.
class KernelReader {
 public:
  // The module's names, and its functions, which are put in place of their calls.
  KernelReader(Kernel& kernel, const std::map<std::string, Symbol>& globals,
               const std::map<std::string, Function>& functions);
  // text: of the kernel's parameters and body, and the line of the file in which the body begins.
  void read(const Function& text);

 private:
  using Words = std::vector<std::string>;

  [[noreturn]] void refuse(const std::string& what) const;
  void read_body(const std::string& body);
  void declare(const std::string& statement);
  void instruct(const std::string& statement);
  void emit(const std::string& name, const Words& operands);
  // Makes a conversion read only the lower part of a register if needed.
  void narrow(const std::string& name, Words& operands);
  // The function's instructions in place of the call.
  void call(const Words& operands);
  void resolve_labels();

  // Places in a warp's registers.
  int32_t new_place(int bytes);
  void add_register(const std::string& name, const std::string& type);
  int32_t constant(int bytes, uint64_t value);
  int32_t special(const std::string& name);
  int32_t local_address(uint64_t offset);
  int32_t shared_address(const Symbol& symbol, const std::string& name, int bytes);
  const Symbol* find(const std::string& name) const;  // null: there is none
  int register_bytes(const std::string& name) const;  // 0: no register
  // An operand as the place of its values, of which an immediate one has `bytes`; 0: a predicate.
  int32_t operand(const std::string& text, int bytes);
  void operands_of(Instruction& to, const Words& operands, const std::vector<int>& bytes);
  // [base+offset]
  void address(Instruction& to, const std::string& text);

  void decode(Instruction& to, const std::string& name, const Words& operands);
  void decode_arithmetic(Instruction& to, const Words& parts, const Words& operands);
  void decode_access(Instruction& to, const Words& parts, const Words& operands);
  void decode_atomic(Instruction& to, const Words& parts, const Words& operands);
  void decode_copy(Instruction& to, const std::string& name, const Words& operands);
  void decode_shuffle(Instruction& to, const Words& parts, const Words& operands);
  void decode_vote(Instruction& to, const Words& parts, const Words& operands);
  void decode_pair(Instruction& to, const Words& parts, const Words& operands);

  Kernel& kernel_;
  const std::map<std::string, Function>& functions_;
  std::vector<std::map<std::string, Symbol>> scopes_;
  std::map<std::pair<int, uint64_t>, int32_t> constants_;
  std::unordered_map<std::string, int32_t> specials_;
  std::map<uint64_t, int32_t> locals_;
  std::map<std::string, uint64_t> module_arrays_;
  std::vector<int32_t> dynamic_;  // places of the address at which dynamic shared memory begins
  std::unordered_map<std::string, int32_t> labels_;
  std::vector<std::pair<size_t, std::string>> jumps_;
  std::string label_prefix_, return_label_;
  int calls_ = 0;
  int line_ = 0;
  int32_t guard_ = -1;
  bool guard_negated_ = false;
};

}  // namespace quire::ptx
