// Reads the documents of a file one after the other, each in pieces.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

#include "data/sources/document_source.h"

namespace quire {

// How .jsonl records are read.
struct RecordKeys {
  std::string text = "text";
  std::optional<std::string> name = {};  // without it, records are named FILE:LINE
  // Counts of records that cannot be read and are left out, by cause. Without it such records are errors.
  std::map<std::string, int64_t>* left_out = nullptr;
};

// Returns text such as: 3 bad records were left out: 2 not JSON, 1 no "text"
std::string describe_left_out(const std::map<std::string, int64_t>& left_out);

class DocumentReader {
 public:
  static constexpr size_t kChunk = size_t{1} << 20;

  virtual ~DocumentReader();
  // Moves to the next document, which the functions below then describe. Returns false at the end of the file.
  virtual bool next_document() = 0;
  virtual const std::string& name() const = 0;
  virtual std::string where() const = 0;  // file, and line of a record, for messages
  // Returns the next bytes of the document, valid until the next call; empty at its end.
  virtual std::string_view next() = 0;
  // Returns how many bytes of the file were read so far.
  virtual int64_t consumed() const = 0;
};

}  // namespace quire
