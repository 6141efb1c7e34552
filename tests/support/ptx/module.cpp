// Reads the text of a module.
#include <algorithm>
#include <cstring>
#include <fstream>
#include <stdexcept>

#include "tests/support/ptx/kernel_reader.h"
#include "tests/support/ptx/text.h"

namespace quire::ptx {

namespace {

// Returns the text without comments, with the same number of lines.
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

std::unique_ptr<Kernel> read_kernel(const std::string& file, const std::string& kernel_name) {
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
  const auto refuse = [&](size_t place, const std::string& what) {
    throw std::runtime_error(file + ":" + std::to_string(line_at(place)) + ": " + what);
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
        globals[declared.name] = {Symbol::Kind::shared, 4, 0, 0, declared.bytes, declared.alignment};
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
      } else if (name == kernel_name) {
        kernel = std::make_unique<Kernel>();
        kernel->name = name;
        kernel->file = file;
        const size_t limit = limits.find(".maxntid");
        if (limit != std::string::npos)
          kernel->max_threads = std::stoul(limits.substr(limit + std::strlen(".maxntid")));
        of_kernel = function;
      }
      at = end;
    } else {
      refuse(at, "unknown directive " + word);
    }
  }
  if (kernel == nullptr) throw std::runtime_error(file + ": there is no kernel " + kernel_name);
  kernel->arrays = std::move(arrays);
  // Functions may stand behind it.
  KernelReader(*kernel, globals, functions).read(of_kernel);
  return kernel;
}

}  // namespace quire::ptx
