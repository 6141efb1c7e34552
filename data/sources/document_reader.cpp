#include "data/sources/document_reader.h"

#include <fmt/format.h>

namespace quire {

DocumentReader::~DocumentReader() = default;

std::string describe_left_out(const std::map<std::string, int64_t>& left_out) {
  int64_t records = 0;
  std::string kinds;
  for (const auto& [kind, count] : left_out) {
    records += count;
    kinds += fmt::format("{}{} {}", kinds.empty() ? "" : ", ", count, kind);
  }
  return fmt::format("{} bad records were left out: {}", records, kinds);
}

}  // namespace quire
