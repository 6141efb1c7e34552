#include "tests/support/nccl_stand_in/injection.h"

#include <cstdlib>
#include <sstream>

namespace quire::nccl_stand_in {

namespace {

// Cuts off what follows the mark, and returns it.
std::optional<int64_t> cut(std::string& item, char mark) {
  const size_t at = item.find(mark);
  if (at == std::string::npos) return std::nullopt;
  const int64_t value = std::strtoll(item.c_str() + at + 1, nullptr, 10);
  item.resize(at);
  return value;
}

}  // namespace

std::optional<int64_t> injected(const std::string& what, int rank, int64_t operation) {
  const char* const list = std::getenv("QUIRE_NCCL_STAND_IN");
  std::istringstream items(list == nullptr ? "" : list);
  std::string item;
  while (std::getline(items, item, ',')) {
    const std::optional<int64_t> value = cut(item, '=');
    const std::optional<int64_t> its_operation = cut(item, ':');
    const std::optional<int64_t> its_rank = cut(item, '@');
    if (item == what && its_rank.value_or(rank) == rank && its_operation.value_or(operation) == operation) {
      return value.value_or(0);
    }
  }
  return std::nullopt;
}

}  // namespace quire::nccl_stand_in
