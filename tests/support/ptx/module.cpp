// Reads the text of a module.
#include <algorithm>
#include <bit>
#include <cctype>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>
#include <stdexcept>
#include <string_view>
#include <unordered_map>
#include <utility>

#include "tests/support/ptx/machine.h"

namespace quire::ptx {

namespace {

// What a name stands for.
struct Symbol {
  enum class Kind { value, predicate, shared, memory, local } kind = Kind::value;
  int bytes = 0;      // of a register's value
  int32_t place = 0;  // of a register
  // In the window of shared memory (0: where dynamic memory begins, or the module's own array will), an address, or an
  // offset in a thread's local memory.
  uint64_t at = 0;
  size_t module_bytes = 0;  // of an array of the module in shared memory
};

struct Function {
  std::string parameters, result, body;
  int line = 0;
};

std::vector<std::string> words_of(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::vector<std::string> words;
  for (std::string word; in >> word;) words.push_back(word);
  return words;
}

std::string trimmed(std::string_view text) {
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.front())) != 0) text.remove_prefix(1);
  while (!text.empty() && std::isspace(static_cast<unsigned char>(text.back())) != 0) text.remove_suffix(1);
  return std::string(text);
}

// At commas outside of brackets.
std::vector<std::string> split_at_commas(std::string_view text) {
  std::vector<std::string> parts;
  int depth = 0;
  size_t begin = 0;
  for (size_t n = 0; n <= text.size(); ++n) {
    if (n == text.size() || (text[n] == ',' && depth == 0)) {
      std::string part = trimmed(text.substr(begin, n - begin));
      if (!part.empty()) parts.push_back(std::move(part));
      begin = n + 1;
    } else if (std::strchr("{[(", text[n]) != nullptr) {
      ++depth;
    } else if (std::strchr("}])", text[n]) != nullptr) {
      --depth;
    }
  }
  return parts;
}

int bytes_of_type(const std::string& type) {
  if (type == "pred") return 0;
  if (type.find("64") != std::string::npos) return 8;
  if (type.find("32") != std::string::npos || type == "bf16x2") return 4;
  if (type.find("16") != std::string::npos) return 2;
  return 1;
}

std::vector<std::string> split_name(const std::string& name) {
  std::vector<std::string> parts;
  std::istringstream in(name);
  for (std::string part; std::getline(in, part, '.');) parts.push_back(part);
  return parts;
}

size_t round_up(size_t bytes, size_t to) {
  return (bytes + to - 1) / to * to;
}

// A declaration such as `.align 16 .b8 name[128]`.
struct Declaration {
  size_t alignment = 1;
  size_t element = 1;
  std::string name;
  size_t bytes = 0;

  explicit Declaration(std::string_view text) {
    for (const std::string& word : words_of(text)) {
      if (word == ".align") continue;
      if (std::isdigit(static_cast<unsigned char>(word[0])) != 0) {
        alignment = std::stoul(word);
      } else if (word[0] == '.') {
        element = static_cast<size_t>(std::max(1, bytes_of_type(word.substr(1))));
      } else {
        const size_t bracket = word.find('[');
        name = word.substr(0, bracket);
        size_t count = 1;
        if (bracket != std::string::npos) count = word[bracket + 1] == ']' ? 0 : std::stoul(word.substr(bracket + 1));
        bytes = count * element;
        break;
      }
    }
    alignment = std::max(alignment, element);
  }
};

class KernelReader {
 public:
  KernelReader(Kernel& kernel, const std::map<std::string, Symbol>& globals,
               const std::map<std::string, Function>& functions)
      : kernel_(kernel), functions_(functions) {
    scopes_.push_back(globals);
    scopes_.emplace_back();
  }

  void read(const std::string& parameters, const std::string& body, int line) {
    line_ = line;
    size_t at = 0;
    std::vector<std::pair<Declaration, size_t>> places;
    for (const std::string& parameter : split_at_commas(parameters)) {
      const Declaration declared(parameter.substr(std::strlen(".param")));
      at = round_up(at, declared.alignment);
      places.emplace_back(declared, at);
      kernel_.parameters.emplace_back(at, declared.bytes);
      at += declared.bytes;
    }
    kernel_.parameter_memory = std::make_unique<unsigned char[]>(at + 16);
    auto* const memory = kernel_.parameter_memory.get();
    for (const auto& [declared, offset] : places) {
      scopes_.back()[declared.name] = {Symbol::Kind::memory, 8, 0, reinterpret_cast<uint64_t>(memory + offset)};
    }
    read_body(body);
    // Dynamic shared memory begins behind the kernel's own arrays.
    for (const int32_t place : dynamic_) {
      const size_t begin = kSharedBegin + round_up(kernel_.shared_bytes, 16);
      for (Constant& constant : kernel_.constants) {
        if (constant.place == place) constant.value += begin;
      }
    }
    emit("ret", {});
    resolve_labels();
    kernel_.local_bytes = round_up(kernel_.local_bytes, 16);
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw std::runtime_error(kernel_.file + ":" + std::to_string(line_) + ": " + what);
  }

  void read_body(const std::string& body) {
    size_t at = 0;
    while (at < body.size()) {
      const char c = body[at];
      if (c == '\n') ++line_;
      if (std::isspace(static_cast<unsigned char>(c)) != 0 || c == ';') {
        ++at;
      } else if (c == '{') {
        scopes_.emplace_back();
        ++at;
      } else if (c == '}') {
        scopes_.pop_back();
        ++at;
      } else {
        size_t end = at;
        while (end < body.size() &&
               (std::isalnum(static_cast<unsigned char>(body[end])) != 0 || std::strchr("$_%.", body[end]) != nullptr))
          ++end;
        if (end + 1 < body.size() && body[end] == ':' && body[end + 1] != ':') {
          labels_[label_prefix_ + body.substr(at, end - at)] = static_cast<int32_t>(kernel_.code.size());
          at = end + 1;
          continue;
        }
        end = body.find(';', at);
        if (end == std::string::npos) refuse("a statement does not end");
        const std::string statement = body.substr(at, end - at);
        body[at] == '.' ? declare(statement) : instruct(statement);
        line_ += static_cast<int>(std::count(statement.begin(), statement.end(), '\n'));
        at = end + 1;
      }
    }
  }

  void declare(const std::string& statement) {
    const std::string kind = statement.substr(0, statement.find_first_of(" \t"));
    const std::string rest = trimmed(statement.substr(kind.size()));
    if (kind == ".pragma") return;
    if (kind == ".reg") {
      const size_t end = rest.find_first_of(" \t");
      const std::string type = rest.substr(1, end - 1);
      for (const std::string& name : split_at_commas(rest.substr(end))) {
        const size_t many = name.find('<');
        if (many == std::string::npos) {
          add_register(name, type);
          continue;
        }
        const size_t count = std::stoul(name.substr(many + 1));
        for (size_t n = 0; n < count; ++n) add_register(name.substr(0, many) + std::to_string(n), type);
      }
      return;
    }
    const Declaration declared(rest);
    if (kind == ".shared") {
      kernel_.shared_bytes = round_up(kernel_.shared_bytes, declared.alignment);
      scopes_.back()[declared.name] = {Symbol::Kind::shared, 4, 0, kSharedBegin + kernel_.shared_bytes};
      kernel_.shared_bytes += declared.bytes;
    } else if (kind == ".local" || kind == ".param") {
      kernel_.local_bytes = round_up(kernel_.local_bytes, std::max<size_t>(declared.alignment, 8));
      scopes_.back()[declared.name] = {Symbol::Kind::local, 8, 0, kernel_.local_bytes};
      kernel_.local_bytes += declared.bytes;
    } else {
      refuse("unknown directive " + kind);
    }
  }

  int32_t new_place(int bytes) {
    const auto place = static_cast<int32_t>(kernel_.register_bytes);
    kernel_.register_bytes += round_up(static_cast<size_t>(std::max(bytes, 1)) * kLanes, 64);
    return place;
  }
  void add_register(const std::string& name, const std::string& type) {
    const int bytes = bytes_of_type(type);
    scopes_.back()[name] = {bytes == 0 ? Symbol::Kind::predicate : Symbol::Kind::value, bytes, new_place(bytes), 0};
  }
  int32_t constant(int bytes, uint64_t value) {
    const auto [found, is_new] = constants_.try_emplace({bytes, value}, 0);
    if (is_new) {
      found->second = new_place(bytes);
      kernel_.constants.push_back({found->second, bytes, value});
    }
    return found->second;
  }
  // Of its own, since it will change.
  int32_t unshared_constant(int bytes, uint64_t value) {
    const int32_t place = new_place(bytes);
    kernel_.constants.push_back({place, bytes, value});
    return place;
  }

  const Symbol* find(const std::string& name) const {
    for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
      const auto found = scope->find(name);
      if (found != scope->end()) return &found->second;
    }
    return nullptr;
  }

  int32_t special(const std::string& name) {
    static const std::unordered_map<std::string, Special> names{
        {"%tid.x", Special::tid_x},     {"%tid.y", Special::tid_y},
        {"%tid.z", Special::tid_z},     {"%ctaid.x", Special::ctaid_x},
        {"%ctaid.y", Special::ctaid_y}, {"%ctaid.z", Special::ctaid_z},
        {"%laneid", Special::laneid},   {"%lanemask_le", Special::lanemask_le}};
    static const std::unordered_map<std::string, uint64_t> sizes{{"%ntid.x", 0},   {"%ntid.y", 1},   {"%ntid.z", 2},
                                                                 {"%nctaid.x", 3}, {"%nctaid.y", 4}, {"%nctaid.z", 5}};
    const auto [known, is_new] = specials_.try_emplace(name, 0);
    if (!is_new) return known->second;
    known->second = new_place(4);
    if (const auto found = names.find(name); found != names.end()) {
      kernel_.specials.push_back({found->second, known->second, 0});
    } else if (const auto size = sizes.find(name); size != sizes.end()) {
      kernel_.sizes.push_back({known->second, 4, size->second});
    } else {
      refuse("unknown register " + name);
    }
    return known->second;
  }

  int32_t local_address(uint64_t offset) {
    const auto [known, is_new] = locals_.try_emplace(offset, 0);
    if (is_new) {
      known->second = new_place(8);
      kernel_.specials.push_back({Special::local, known->second, offset});
    }
    return known->second;
  }

  // An operand as the place of its values, of which an immediate one has `bytes`.
  int32_t operand(const std::string& text, int bytes) {
    if (text == "_") return new_place(std::max(bytes, 4));
    if (text[0] == '%' && find(text) == nullptr) return special(text);
    if (text.starts_with("0f") || text.starts_with("0F")) return constant(4, std::stoull(text.substr(2), nullptr, 16));
    if (text.starts_with("0d") || text.starts_with("0D")) return constant(8, std::stoull(text.substr(2), nullptr, 16));
    if (std::isdigit(static_cast<unsigned char>(text[0])) != 0 || text[0] == '-') {
      const uint64_t value =
          text[0] == '-' ? static_cast<uint64_t>(std::stoll(text, nullptr, 0)) : std::stoull(text, nullptr, 0);
      if (bytes == 0) return constant(4, value != 0 ? kAll : 0);
      return constant(bytes, value);
    }
    const Symbol* const symbol = find(text);
    if (symbol == nullptr) refuse("unknown name " + text);
    switch (symbol->kind) {
      case Symbol::Kind::value:
        if (bytes != 0 && symbol->bytes != bytes) refuse("register " + text + " has another size");
        return symbol->place;
      case Symbol::Kind::predicate:
        if (bytes != 0) refuse("register " + text + " is a predicate");
        return symbol->place;
      case Symbol::Kind::shared:
        return shared_address(*symbol, text, bytes);
      case Symbol::Kind::memory:
        return constant(8, symbol->at);
      case Symbol::Kind::local:
        return local_address(symbol->at);
    }
    return 0;
  }
  int32_t shared_address(const Symbol& symbol, const std::string& name, int bytes) {
    if (symbol.at != 0) return constant(bytes, symbol.at);
    if (symbol.module_bytes != 0) {  // a place in every kernel that names it
      const auto [known, is_new] = module_arrays_.try_emplace(name, 0);
      if (is_new) {
        kernel_.shared_bytes = round_up(kernel_.shared_bytes, 16);
        known->second = kSharedBegin + kernel_.shared_bytes;
        kernel_.shared_bytes += symbol.module_bytes;
      }
      return constant(bytes, known->second);
    }
    const int32_t place = unshared_constant(bytes, 0);
    dynamic_.push_back(place);
    return place;
  }

  // [base+offset]
  void address(Instruction& to, const std::string& text) {
    if (text.size() < 2 || text[0] != '[') refuse("no address: " + text);
    std::string base = text.substr(1, text.size() - 2);
    to.number = 0;
    const size_t plus = base.find('+');
    if (plus != std::string::npos) {
      to.number = std::stoll(base.substr(plus + 1), nullptr, 0);
      base = trimmed(base.substr(0, plus));
    }
    const Symbol* const symbol = find(base);
    if (symbol == nullptr) refuse("unknown name " + base);
    to.address_bytes = static_cast<uint8_t>(symbol->kind == Symbol::Kind::shared ? 4 : symbol->bytes);
    to.operands.push_back(operand(base, to.address_bytes));
  }

  std::vector<std::string> elements(const std::string& text) const {
    if (text[0] != '{') return {text};
    return split_at_commas(std::string_view(text).substr(1, text.size() - 2));
  }
  int register_bytes(const std::string& name) const {
    const Symbol* const symbol = find(name);
    return symbol == nullptr || symbol->kind != Symbol::Kind::value ? 0 : symbol->bytes;
  }

  Instruction& emit(const std::string& name, const std::vector<std::string>& operands) {
    Instruction& to = kernel_.code.emplace_back();
    to.line = line_;
    to.guard = guard_;
    to.guard_negated = guard_negated_;
    to.kind = Kind::control;
    if (name == "ret" || name == "exit") {
      to.flow = Flow::end;
      to.run = run_nothing;
      if (!return_label_.empty()) {
        to.flow = Flow::branch;
        jumps_.emplace_back(kernel_.code.size() - 1, return_label_);
      }
    } else if (name == "bra" || name == "bra.uni") {
      to.flow = Flow::branch;
      to.run = run_nothing;
      jumps_.emplace_back(kernel_.code.size() - 1, label_prefix_ + operands.at(0));
    } else {
      fill(to, name, operands);
    }
    return to;
  }

  void instruct(const std::string& statement) {
    std::string text = trimmed(statement);
    guard_ = -1;
    guard_negated_ = false;
    if (text[0] == '@') {
      const size_t end = text.find_first_of(" \t");
      guard_negated_ = text[1] == '!';
      guard_ = operand(text.substr(guard_negated_ ? 2 : 1, end - (guard_negated_ ? 2 : 1)), 0);
      text = trimmed(text.substr(end));
    }
    const size_t end = std::min(text.find_first_of(" \t\n"), text.size());
    const std::string name = text.substr(0, end);
    std::vector<std::string> operands = split_at_commas(std::string_view(text).substr(end));
    if (name.starts_with("cvt.")) narrow(name, operands);
    name == "call.uni" ? call(operands) : static_cast<void>(emit(name, operands));
  }

  // What is converted may be the lower part of a register.
  void narrow(const std::string& name, std::vector<std::string>& operands) {
    const int bytes = bytes_of_type(name.substr(name.rfind('.') + 1));
    const int of_register = register_bytes(operands.at(1));
    if (of_register <= bytes || bytes < 2) return;
    const std::string part = "lower part " + std::to_string(kernel_.code.size());
    add_register(part, bytes == 4 ? "u32" : "u16");
    emit("cvt.u" + std::to_string(8 * bytes) + ".u" + std::to_string(8 * of_register), {part, operands[1]});
    operands[1] = part;
  }

  // The function's instructions in place of the call.
  void call(const std::vector<std::string>& operands) {
    const auto inside = [](const std::string& list) {
      return split_at_commas(std::string_view(list).substr(1, list.size() - 2));
    };
    const auto found = functions_.find(operands.at(1));
    if (found == functions_.end()) refuse("unknown function " + operands.at(1));
    const Function& function = found->second;
    std::map<std::string, Symbol> scope;
    const auto bind = [&](const std::string& formal, const std::vector<std::string>& given) {
      const std::vector<std::string> declared = split_at_commas(formal);
      for (size_t n = 0; n < declared.size(); ++n) {
        scope[Declaration(declared[n].substr(std::strlen(".param"))).name] = *find(given.at(n));
      }
    };
    bind(function.result, inside(operands[0]));
    bind(function.parameters, inside(operands.at(2)));
    const int line = line_;
    const std::string outer_prefix = std::exchange(label_prefix_, "call" + std::to_string(++calls_) + ".");
    const std::string outer_return = std::exchange(return_label_, label_prefix_ + "return");
    scopes_.push_back(scope);
    line_ = function.line;
    read_body(function.body);
    scopes_.pop_back();
    labels_[return_label_] = static_cast<int32_t>(kernel_.code.size());
    label_prefix_ = outer_prefix;
    return_label_ = outer_return;
    line_ = line;
  }

  static Kind kind_of(const std::vector<std::string>& parts) {
    static const std::unordered_map<std::string, Kind> kinds{
        {"ex2", Kind::special}, {"rcp", Kind::special}, {"sqrt", Kind::special}, {"div", Kind::special},
        {"rem", Kind::special}, {"mma", Kind::tensor},  {"wgmma", Kind::tensor}, {"ldmatrix", Kind::shared},
        {"cp", Kind::global},   {"bar", Kind::sync},    {"fence", Kind::sync},   {"membar", Kind::sync},
        {"shfl", Kind::shared}, {"vote", Kind::other}};
    if (parts[0] == "ld" || parts[0] == "st" || parts[0] == "atom") {
      for (const std::string& part : parts) {
        if (part == "shared") return Kind::shared;
        if (part == "local") return Kind::local;
        if (part == "param") return Kind::other;  // constants
      }
      return Kind::global;
    }
    const auto found = kinds.find(parts[0]);
    return found == kinds.end() ? Kind::other : found->second;
  }

  void fill(Instruction& to, const std::string& name, const std::vector<std::string>& operands) {
    const std::vector<std::string> parts = split_name(name);
    const std::string& kind = parts[0];
    to.kind = kind_of(parts);
    if (kind == "ld" || kind == "st") return access(to, parts, operands);
    if (kind == "atom") return fill_atomic(to, parts, operands);
    if (kind == "cp") return fill_copy(to, name, operands);
    if (kind == "cvta") {
      const bool to_space = parts[1] == "to";
      const bool shared = parts[to_space ? 2 : 1] == "shared";
      to.run = !shared ? arithmetic("mov.b64") : to_space ? address_to_window : window_to_address;
      return all(to, operands, {8, 8});
    }
    if (kind == "shfl") return fill_shuffle(to, parts, operands);
    if (kind == "vote") return fill_vote(to, parts, operands);
    if (name == "bar.warp.sync") {
      to.flow = Flow::warp;
      to.run = sync_warp;
      return all(to, operands, {4});
    }
    if (name == "bar.sync") {
      to.flow = Flow::block;
      to.run = run_nothing;
      if (operands.size() != 1 || operands[0] != "0") refuse("a barrier of a part of the block");
      return;
    }
    if (name == "ldmatrix.sync.aligned.m8n8.x4.shared.b16" ||
        name == "ldmatrix.sync.aligned.m8n8.x4.trans.shared.b16") {
      to.flow = Flow::warp;
      to.run = load_matrices;
      to.is_signed = false;
      to.count = parts[5] == "trans" ? 2 : 1;
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
    if (kind == "wgmma") return fill_products(to, parts, operands);
    if (name == "fence.proxy.async.shared::cta") {
      to.run = publish;
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
    if (kind == "mov" && (operands[0][0] == '{' || operands.at(1)[0] == '{')) {
      const bool splits = operands[0][0] == '{';
      to.run = splits ? split : join;
      to.bytes = static_cast<uint8_t>(bytes_of_type(parts[1]) / 2);
      const std::string& whole = operands[splits ? 1 : 0];
      to.operands.push_back(operand(whole, 2 * to.bytes));
      for (const std::string& element : elements(operands[splits ? 0 : 1])) {
        to.operands.push_back(element == "_" ? new_place(to.bytes) : operand(element, to.bytes));
      }
      return;
    }
    to.run = arithmetic(name);
    if (to.run == nullptr) refuse("unknown instruction " + name);
    fill_arithmetic(to, parts, operands);
  }

  void all(Instruction& to, const std::vector<std::string>& operands, const std::vector<int>& bytes) {
    if (operands.size() != bytes.size()) refuse("another number of operands");
    for (size_t n = 0; n < bytes.size(); ++n) to.operands.push_back(operand(operands[n], bytes[n]));
  }

  void fill_arithmetic(Instruction& to, const std::vector<std::string>& parts,
                       const std::vector<std::string>& operands) {
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
    to.number =
        (kind.ends_with("c") ? 1 : 0) | (has("cc") ? 2 : 0) | (kind.starts_with("sub") ? 4 : 0) | (has("hi") ? 8 : 0);
    all(to, operands, sizes);
  }

  void access(Instruction& to, const std::vector<std::string>& parts, const std::vector<std::string>& operands) {
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

  void fill_atomic(Instruction& to, const std::vector<std::string>& parts, const std::vector<std::string>& operands) {
    to.run = atomic;
    to.space = parts[1] == "shared" ? Space::shared : Space::generic;
    to.bytes = static_cast<uint8_t>(bytes_of_type(parts.back()));
    to.is_signed = parts.back()[0] == 's';
    address(to, operands.at(1));
    if (parts[2] != "add" && parts[2] != "max") refuse("unknown atomic operation");
    to.count = static_cast<uint8_t>(parts[2] == "add" ? AtomicKind::add : AtomicKind::max);
    to.operands.push_back(operand(operands[0], to.bytes));
    to.operands.push_back(operand(operands.at(2), to.bytes));
  }

  void fill_copy(Instruction& to, const std::string& name, const std::vector<std::string>& operands) {
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

  void fill_shuffle(Instruction& to, const std::vector<std::string>& parts, const std::vector<std::string>& operands) {
    static const std::unordered_map<std::string, ShuffleKind> kinds{
        {"up", ShuffleKind::up}, {"down", ShuffleKind::down}, {"bfly", ShuffleKind::bfly}, {"idx", ShuffleKind::idx}};
    to.flow = Flow::warp;
    to.run = shuffle;
    to.number = static_cast<int64_t>(kinds.at(parts.at(2)));
    const size_t bar = operands[0].find('|');
    // The mask first, where every instruction of whole warps has it.
    to.operands.push_back(operand(operands.at(4), 4));
    to.operands.push_back(operand(operands[0].substr(0, bar), 4));
    to.operands.push_back(bar == std::string::npos ? new_place(0) : operand(operands[0].substr(bar + 1), 0));
    for (const size_t n : {1, 2, 3}) to.operands.push_back(operand(operands.at(n), 4));
  }

  void fill_vote(Instruction& to, const std::vector<std::string>& parts, const std::vector<std::string>& operands) {
    static const std::unordered_map<std::string, VoteKind> kinds{
        {"all", VoteKind::all}, {"any", VoteKind::any}, {"ballot", VoteKind::ballot}};
    to.flow = Flow::warp;
    to.run = vote;
    const auto kind =
        std::find_if(parts.begin() + 1, parts.end(), [&](const std::string& part) { return kinds.count(part) != 0; });
    if (kind == parts.end()) refuse("unknown vote");
    to.number = static_cast<int64_t>(kinds.at(*kind));
    to.operands.push_back(operand(operands.at(2), 4));
    to.operands.push_back(operand(operands[0], kinds.at(*kind) == VoteKind::ballot ? 4 : 0));
    to.operands.push_back(operand(operands[1], 0));
  }

  // operands: of the sums, of the left matrix (four registers or one descriptor), the right one's descriptor, and the
  // predicate of adding. count: registers of the left matrix; is_signed: the right matrix is turned; bytes: columns
  // / 8.
  void fill_products(Instruction& to, const std::vector<std::string>& parts, const std::vector<std::string>& operands) {
    to.flow = Flow::warp;
    if (parts[1] == "fence") {
      to.run = begin_products;
    } else if (parts[1] == "commit_group") {
      to.run = end_products;
    } else if (parts[1] == "wait_group") {
      to.run = await_products;
      to.number = std::stoll(operands.at(0));
    } else {
      const std::string& shape = parts.at(4);
      if (!shape.starts_with("m64n") || !shape.ends_with("k16") || parts.at(6) != "bf16") refuse("unknown product");
      to.run = multiply_later;
      to.bytes = static_cast<uint8_t>(std::stoi(shape.substr(4)) / 8);
      const std::vector<std::string> sums = elements(operands.at(0));
      if (sums.size() != size_t{to.bytes} * 4) refuse("another number of sums");
      const std::vector<std::string> left = elements(operands.at(1));
      to.count = static_cast<uint8_t>(left.size());
      for (const std::string& sum : sums) to.operands.push_back(operand(sum, 4));
      for (const std::string& part : left) to.operands.push_back(operand(part, left.size() == 1 ? 8 : 4));
      to.operands.push_back(operand(operands.at(2), 8));
      to.operands.push_back(operand(operands.at(3), 0));
      if (operands.at(4) != "1" || operands.at(5) != "1") refuse("a product with a factor");
      if (left.size() == 1 && operands.at(6) != "0") refuse("a left matrix that is turned");
      to.is_signed = operands.back() == "1";
    }
  }

  void resolve_labels() {
    for (const auto& [at, label] : jumps_) {
      const auto found = labels_.find(label);
      if (found == labels_.end()) refuse("unknown label " + label);
      kernel_.code[at].target = found->second;
      kernel_.code[at].run = run_nothing;
    }
  }

  Kernel& kernel_;
  const std::map<std::string, Function>& functions_;
  std::vector<std::map<std::string, Symbol>> scopes_;
  std::map<std::pair<int, uint64_t>, int32_t> constants_;
  std::unordered_map<std::string, int32_t> specials_;
  std::map<uint64_t, int32_t> locals_;
  std::map<std::string, uint64_t> module_arrays_;
  std::vector<int32_t> dynamic_;
  std::unordered_map<std::string, int32_t> labels_;
  std::vector<std::pair<size_t, std::string>> jumps_;
  std::string label_prefix_, return_label_;
  int calls_ = 0;
  int line_ = 0;
  int32_t guard_ = -1;
  bool guard_negated_ = false;
};

// Without comments, as many lines as before.
std::string text_of(const std::string& file) {
  std::ifstream in(file, std::ios::binary);
  if (!in) throw std::runtime_error(file + ": cannot be read");
  std::string text;
  for (std::string line; std::getline(in, line);) text += line.substr(0, line.find("//")) + "\n";
  return text;
}

// An array of a module with its first values.
uint64_t make_global(const Declaration& declared, const std::string& values,
                     std::vector<std::unique_ptr<unsigned char[]>>& arrays) {
  constexpr size_t kAlignment = 64;
  arrays.push_back(std::make_unique<unsigned char[]>(declared.bytes + kAlignment));
  auto* const begin =
      reinterpret_cast<unsigned char*>(round_up(reinterpret_cast<size_t>(arrays.back().get()), kAlignment));
  size_t at = 0;
  for (const std::string& value : split_at_commas(values)) {
    const uint64_t bits = std::stoull(value, nullptr, 0);
    std::memcpy(begin + at, &bits, declared.element);
    at += declared.element;
  }
  return reinterpret_cast<uint64_t>(begin);
}

// The place behind the bracket that closes the one at `at`.
size_t behind_bracket(const std::string& text, size_t at) {
  int depth = 0;
  do {
    if (std::strchr("({", text.at(at)) != nullptr) ++depth;
    if (std::strchr(")}", text.at(at)) != nullptr) --depth;
    ++at;
  } while (depth > 0);
  return at;
}

}  // namespace

std::unique_ptr<Kernel> read_kernel(const std::string& file, const std::string& wanted) {
  const std::string text = text_of(file);
  std::map<std::string, Symbol> globals;
  std::map<std::string, Function> functions;
  std::vector<std::unique_ptr<unsigned char[]>> arrays;
  std::unique_ptr<Kernel> kernel;
  Function of_kernel;
  size_t at = 0;
  const auto line_at = [&](size_t place) {
    return 1 + static_cast<int>(std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(place), '\n'));
  };
  while ((at = text.find('.', at)) != std::string::npos) {
    const size_t word_end = text.find_first_of(" \t\n", at);
    const std::string word = text.substr(at, word_end - at);
    if (word == ".version" || word == ".target" || word == ".address_size") {
      at = text.find('\n', at);
    } else if (word == ".extern" || word == ".visible" || word == ".weak") {
      at = word_end;
    } else if (word == ".shared" || word == ".global" || word == ".const") {
      const size_t end = text.find(';', at);
      const std::string statement = text.substr(word_end, end - word_end);
      const size_t equals = statement.find('=');
      const Declaration declared(statement.substr(0, equals));
      if (word == ".shared") {
        globals[declared.name] = {Symbol::Kind::shared, 4, 0, 0, declared.bytes};
      } else {
        std::string values = equals == std::string::npos ? "" : trimmed(statement.substr(equals + 1));
        if (!values.empty() && values[0] == '{') values = values.substr(1, values.size() - 2);
        globals[declared.name] = {Symbol::Kind::memory, 8, 0, make_global(declared, values, arrays)};
      }
      at = end + 1;
    } else if (word == ".entry" || word == ".func") {
      size_t next = text.find_first_not_of(" \t\n", word_end);
      Function function;
      const auto bracket = [&] {
        const size_t end = behind_bracket(text, next);
        const std::string inside = text.substr(next + 1, end - next - 2);
        next = text.find_first_not_of(" \t\n", end);
        return inside;
      };
      if (text[next] == '(') function.result = bracket();
      const size_t name_end = text.find_first_of(" \t\n(", next);
      const std::string name = text.substr(next, name_end - next);
      next = text.find_first_not_of(" \t\n", name_end);
      if (text[next] == '(') function.parameters = bracket();
      const size_t open = text.find_first_of("{;", next);
      if (text[open] == ';') {
        at = open + 1;
        continue;
      }
      const std::string limits = text.substr(next, open - next);
      const size_t end = behind_bracket(text, open);
      function.body = text.substr(open + 1, end - open - 2);
      function.line = line_at(open);
      if (word == ".func") {
        functions[name] = function;
      } else if (name == wanted) {
        kernel = std::make_unique<Kernel>();
        kernel->name = name;
        kernel->file = file;
        const size_t most = limits.find(".maxntid");
        if (most != std::string::npos) kernel->most_threads = std::stoul(limits.substr(most + std::strlen(".maxntid")));
        of_kernel = function;
      }
      at = end;
    } else {
      throw std::runtime_error(file + ":" + std::to_string(line_at(at)) + ": unknown directive " + word);
    }
  }
  if (kernel == nullptr) throw std::runtime_error(file + ": there is no kernel " + wanted);
  kernel->arrays = std::move(arrays);
  // Functions may stand behind it.
  KernelReader(*kernel, globals, functions).read(of_kernel.parameters, of_kernel.body, of_kernel.line);
  return kernel;
}

}  // namespace quire::ptx
