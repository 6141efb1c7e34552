#include "tests/support/ptx/kernel_reader.h"

#include <algorithm>
#include <cctype>
#include <cstring>
#include <stdexcept>

#include "tests/support/ptx/text.h"

namespace quire::ptx {

KernelReader::KernelReader(Kernel& kernel, const std::map<std::string, Symbol>& globals,
                           const std::map<std::string, Function>& functions)
    : kernel_(kernel), functions_(functions) {
  scopes_.push_back(globals);
  scopes_.emplace_back();
}

void KernelReader::read(const Function& text) {
  line_ = text.line;
  size_t at = 0;
  std::vector<std::pair<Declaration, size_t>> places;
  for (const std::string& parameter : split_at_commas(text.parameters)) {
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
  read_body(text.body);
  guard_ = -1;
  emit("ret", {});
  resolve_labels();
  // Dynamic shared memory begins behind the kernel's own arrays.
  for (Constant& constant : kernel_.constants) {
    if (std::find(dynamic_.begin(), dynamic_.end(), constant.place) != dynamic_.end()) {
      constant.value = kSharedBegin + kernel_.dynamic_begin();
    }
  }
  kernel_.local_bytes = round_up(kernel_.local_bytes, 16);
}

size_t Kernel::dynamic_begin() const {
  constexpr size_t kAlignment = 16;  // that of dynamic_shared() in kernels/cuda/runtime.h
  return place_of_array(shared_bytes, kAlignment);
}

void KernelReader::refuse(const std::string& what) const {
  throw std::runtime_error(kernel_.file + ":" + std::to_string(line_) + ": " + what);
}

void KernelReader::read_body(const std::string& body) {
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

void KernelReader::declare(const std::string& statement) {
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
    kernel_.shared_bytes = place_of_array(kernel_.shared_bytes, declared.alignment);
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

int32_t KernelReader::new_place(int bytes) {
  const auto place = static_cast<int32_t>(kernel_.register_bytes);
  kernel_.register_bytes += round_up(static_cast<size_t>(std::max(bytes, 1)) * kLanes, 64);
  return place;
}

void KernelReader::add_register(const std::string& name, const std::string& type) {
  const int bytes = bytes_of_type(type);
  scopes_.back()[name] = {bytes == 0 ? Symbol::Kind::predicate : Symbol::Kind::value, bytes, new_place(bytes), 0};
}

int32_t KernelReader::constant(int bytes, uint64_t value) {
  const auto [found, is_new] = constants_.try_emplace({bytes, value}, 0);
  if (is_new) {
    found->second = new_place(bytes);
    kernel_.constants.push_back({found->second, bytes, value});
  }
  return found->second;
}

const Symbol* KernelReader::find(const std::string& name) const {
  for (auto scope = scopes_.rbegin(); scope != scopes_.rend(); ++scope) {
    const auto found = scope->find(name);
    if (found != scope->end()) return &found->second;
  }
  return nullptr;
}

int32_t KernelReader::special(const std::string& name) {
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

int32_t KernelReader::local_address(uint64_t offset) {
  const auto [known, is_new] = locals_.try_emplace(offset, 0);
  if (is_new) {
    known->second = new_place(8);
    kernel_.specials.push_back({Special::local, known->second, offset});
  }
  return known->second;
}

int32_t KernelReader::operand(const std::string& text, int bytes) {
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

int32_t KernelReader::shared_address(const Symbol& symbol, const std::string& name, int bytes) {
  if (symbol.at != 0) return constant(bytes, symbol.at);
  if (symbol.module_bytes != 0) {  // a place in every kernel that names it
    const auto [known, is_new] = module_arrays_.try_emplace(name, 0);
    if (is_new) {
      kernel_.shared_bytes = place_of_array(kernel_.shared_bytes, symbol.module_alignment);
      known->second = kSharedBegin + kernel_.shared_bytes;
      kernel_.shared_bytes += symbol.module_bytes;
    }
    return constant(bytes, known->second);
  }
  const int32_t place = new_place(bytes);
  kernel_.constants.push_back({place, bytes, 0});
  dynamic_.push_back(place);
  return place;
}

void KernelReader::address(Instruction& to, const std::string& text) {
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

int KernelReader::register_bytes(const std::string& name) const {
  const Symbol* const symbol = find(name);
  return symbol == nullptr || symbol->kind != Symbol::Kind::value ? 0 : symbol->bytes;
}

void KernelReader::emit(const std::string& name, const Words& operands) {
  Instruction& to = kernel_.code.emplace_back();
  to.line = line_;
  to.guard = guard_;
  to.guard_negated = guard_negated_;
  if (name == "ret" || name == "exit") {
    to.flow = Flow::end;
    to.run = run_nothing;
    if (name == "ret" && !return_label_.empty()) {
      to.flow = Flow::branch;
      jumps_.emplace_back(kernel_.code.size() - 1, return_label_);
    }
  } else if (name == "bra" || name == "bra.uni") {
    to.flow = Flow::branch;
    to.run = run_nothing;
    jumps_.emplace_back(kernel_.code.size() - 1, label_prefix_ + operands.at(0));
  } else {
    decode(to, name, operands);
  }
}

void KernelReader::instruct(const std::string& statement) {
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
  name == "call.uni" ? call(operands) : emit(name, operands);
}

void KernelReader::narrow(const std::string& name, Words& operands) {
  const int bytes = bytes_of_type(name.substr(name.rfind('.') + 1));
  const int of_register = register_bytes(operands.at(1));
  if (of_register <= bytes || bytes < 2) return;
  const std::string part = "lower part " + std::to_string(kernel_.code.size());
  add_register(part, bytes == 4 ? "u32" : "u16");
  emit("cvt.u" + std::to_string(8 * bytes) + ".u" + std::to_string(8 * of_register), {part, operands[1]});
  operands[1] = part;
}

void KernelReader::call(const Words& operands) {
  const auto inside = [](const std::string& list) {
    return split_at_commas(std::string_view(list).substr(1, list.size() - 2));
  };
  if (guard_ >= 0) refuse("a call under a condition");
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

void KernelReader::resolve_labels() {
  for (const auto& [at, label] : jumps_) {
    const auto found = labels_.find(label);
    if (found == labels_.end()) refuse("unknown label " + label);
    kernel_.code[at].target = found->second;
    kernel_.code[at].run = run_nothing;
  }
}

}  // namespace quire::ptx
