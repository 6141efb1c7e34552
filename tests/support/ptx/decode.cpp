// The operations of instructions.
#include <algorithm>

#include "tests/support/ptx/kernel_reader.h"
#include "tests/support/ptx/text.h"

namespace quire::ptx {

namespace {

// {a, b} or a.
std::vector<std::string> elements(const std::string& text) {
  if (text[0] != '{') return {text};
  return split_at_commas(std::string_view(text).substr(1, text.size() - 2));
}

}  // namespace

void KernelReader::decode(Instruction& to, const std::string& name, const Words& operands) {
  const std::vector<std::string> parts = split_name(name);
  const std::string& kind = parts[0];
  if (kind == "ld" || kind == "st") return decode_access(to, parts, operands);
  if (kind == "atom") return decode_atomic(to, parts, operands);
  if (kind == "cp") return decode_copy(to, name, operands);
  if (kind == "cvta") {
    const bool to_space = parts[1] == "to";
    const bool shared = parts[to_space ? 2 : 1] == "shared";
    to.run = !shared ? arithmetic("mov.b64") : to_space ? address_to_window : window_to_address;
    return operands_of(to, operands, {8, 8});
  }
  if (kind == "shfl") return decode_shuffle(to, parts, operands);
  if (kind == "vote") return decode_vote(to, parts, operands);
  if (name == "bar.warp.sync") {
    to.flow = Flow::warp;
    to.run = sync_warp;
    return operands_of(to, operands, {4});
  }
  if (name == "bar.sync") {
    to.flow = Flow::block;
    to.run = run_nothing;
    if (operands.size() != 1 || operands[0] != "0") refuse("a barrier of a part of the block");
    return;
  }
  if (name == "ldmatrix.sync.aligned.m8n8.x4.shared.b16" || name == "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") {
    to.flow = Flow::warp;
    to.run = load_matrices;
    to.transposed = parts[5] == "trans";
    address(to, operands.at(1));
    for (const std::string& element : elements(operands[0])) to.operands.push_back(operand(element, 4));
    return;
  }
  if (name == "mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32") {
    to.flow = Flow::warp;
    to.run = multiply_add;
    for (const std::string& matrix : operands) {
      for (const std::string& element : elements(matrix)) to.operands.push_back(operand(element, 4));
    }
    return;
  }
  if (kind == "membar") {
    to.run = run_nothing;
    return;
  }
  if (kind == "trap") {
    to.run = trap;
    return;
  }
  if (kind == "mov" && (operands[0][0] == '{' || operands.at(1)[0] == '{')) return decode_pair(to, parts, operands);
  to.run = arithmetic(name);
  if (to.run == nullptr) refuse("unknown instruction " + name);
  decode_arithmetic(to, parts, operands);
}

// A register in two halves, or two of them as one.
void KernelReader::decode_pair(Instruction& to, const Words& parts, const Words& operands) {
  const bool splits = operands[0][0] == '{';
  to.run = splits ? split : join;
  to.bytes = static_cast<uint8_t>(bytes_of_type(parts[1]) / 2);
  to.operands.push_back(operand(operands[splits ? 1 : 0], 2 * to.bytes));
  for (const std::string& element : elements(operands[splits ? 0 : 1])) {
    to.operands.push_back(operand(element, to.bytes));
  }
}

void KernelReader::operands_of(Instruction& to, const Words& operands, const std::vector<int>& bytes) {
  if (operands.size() != bytes.size()) refuse("another number of operands");
  for (size_t n = 0; n < bytes.size(); ++n) to.operands.push_back(operand(operands[n], bytes[n]));
}

void KernelReader::decode_arithmetic(Instruction& to, const Words& parts, const Words& operands) {
  const std::string& kind = parts[0];
  const int bytes = bytes_of_type(parts.back());
  std::vector<int> sizes(operands.size(), bytes);
  if (kind == "cvt") {
    const std::string& result = parts[parts.size() - 2];
    sizes[0] = bytes_of_type(result);
    if (parts.back() == "s8") sizes[1] = 2;
  } else if (kind == "setp") {
    sizes[0] = 0;
  } else if (kind == "selp") {
    sizes[3] = 0;
  } else if (kind == "shl" || kind == "shr") {
    sizes[2] = 4;
  } else if (kind == "bfi") {
    sizes[3] = sizes[4] = 4;
  } else if (kind == "popc" || kind == "clz") {
    sizes[0] = 4;
  } else if (kind == "mul" && parts[1] == "wide") {
    sizes[0] = 2 * bytes;
  }
  const auto has = [&](const char* part) { return std::find(parts.begin(), parts.end(), part) != parts.end(); };
  to.variant = static_cast<uint8_t>((kind.ends_with("c") ? kCarryRead : 0) | (has("cc") ? kCarryWritten : 0) |
                                    (kind.starts_with("sub") ? kDifference : 0) | (has("hi") ? kUpperHalf : 0));
  operands_of(to, operands, sizes);
}

void KernelReader::decode_access(Instruction& to, const Words& parts, const Words& operands) {
  to.space = Space::generic;
  for (size_t n = 1; n + 1 < parts.size(); ++n) {
    if (parts[n] == "shared") to.space = Space::shared;
    if (parts[n] == "v2") to.count = 2;
    if (parts[n] == "v4") to.count = 4;
  }
  to.bytes = static_cast<uint8_t>(bytes_of_type(parts.back()));
  to.is_signed = parts.back()[0] == 's';
  const bool loads = parts[0] == "ld";
  to.run = loads ? load : store;
  address(to, operands.at(loads ? 1 : 0));
  const std::vector<std::string> values = elements(operands.at(loads ? 0 : 1));
  if (values.size() != to.count) refuse("a vector of another size");
  to.register_bytes = static_cast<uint8_t>(std::max<int>(to.bytes, 2));
  for (const std::string& value : values) {
    if (register_bytes(value) != 0) to.register_bytes = static_cast<uint8_t>(register_bytes(value));
  }
  for (const std::string& value : values) to.operands.push_back(operand(value, to.register_bytes));
}

void KernelReader::decode_atomic(Instruction& to, const Words& parts, const Words& operands) {
  to.run = atomic;
  to.space = parts[1] == "shared" ? Space::shared : Space::generic;
  to.bytes = static_cast<uint8_t>(bytes_of_type(parts.back()));
  to.is_signed = parts.back()[0] == 's';
  address(to, operands.at(1));
  if (parts[2] != "add" && parts[2] != "max") refuse("unknown atomic operation");
  to.variant = static_cast<uint8_t>(parts[2] == "add" ? AtomicKind::add : AtomicKind::max);
  to.operands.push_back(operand(operands[0], to.bytes));
  to.operands.push_back(operand(operands.at(2), to.bytes));
}

void KernelReader::decode_copy(Instruction& to, const std::string& name, const Words& operands) {
  if (name == "cp.async.wait_all") {
    to.run = await_copies;
    return;
  }
  if (name != "cp.async.cg.shared.global" || operands.at(2) != "16") refuse("unknown copy");
  to.run = ptx::copy_later;
  to.space = Space::shared;
  to.bytes = 16;
  address(to, operands[0]);
  Instruction from;
  address(from, operands[1]);
  if (from.number != 0) refuse("a copy with an offset");
  to.operands.push_back(from.operands[0]);
  to.operands.push_back(operand(operands.at(3), 4));
}

void KernelReader::decode_shuffle(Instruction& to, const Words& parts, const Words& operands) {
  static const std::unordered_map<std::string, ShuffleKind> kinds{
      {"up", ShuffleKind::up}, {"down", ShuffleKind::down}, {"bfly", ShuffleKind::bfly}, {"idx", ShuffleKind::idx}};
  to.flow = Flow::warp;
  to.run = shuffle;
  to.variant = static_cast<uint8_t>(kinds.at(parts.at(2)));
  const size_t bar = operands[0].find('|');
  // The mask first, where every instruction of whole warps has it.
  to.operands.push_back(operand(operands.at(4), 4));
  to.operands.push_back(operand(operands[0].substr(0, bar), 4));
  to.operands.push_back(bar == std::string::npos ? new_place(0) : operand(operands[0].substr(bar + 1), 0));
  for (const size_t n : {1, 2, 3}) to.operands.push_back(operand(operands.at(n), 4));
}

void KernelReader::decode_vote(Instruction& to, const Words& parts, const Words& operands) {
  static const std::unordered_map<std::string, VoteKind> kinds{
      {"all", VoteKind::all}, {"any", VoteKind::any}, {"ballot", VoteKind::ballot}};
  to.flow = Flow::warp;
  to.run = vote;
  const auto kind =
      std::find_if(parts.begin() + 1, parts.end(), [&](const std::string& part) { return kinds.count(part) != 0; });
  if (kind == parts.end()) refuse("unknown vote");
  to.variant = static_cast<uint8_t>(kinds.at(*kind));
  to.operands.push_back(operand(operands.at(2), 4));
  to.operands.push_back(operand(operands[0], kinds.at(*kind) == VoteKind::ballot ? 4 : 0));
  to.operands.push_back(operand(operands[1], 0));
}

}  // namespace quire::ptx
