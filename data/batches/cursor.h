// The state of the data path: which document each row is in, and which comes next. A checkpoint saves it as of the
// batch that was consumed.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace quire {

struct RowCursor {
  int64_t place = -1;  // place of the row's document in the order of documents; -1 when the row is free
  int64_t offset = 0;  // model positions of the document already read, BOS and inserted tokens included
  bool operator==(const RowCursor&) const = default;
};

struct Cursor {
  int64_t next_place = 0;  // the next document to deal
  std::vector<RowCursor> rows;
  bool operator==(const Cursor&) const = default;
};

std::string cursor_to_json(const Cursor& cursor);
// Throws Error(checkpoint) for anything but the text of a cursor.
Cursor cursor_from_json(const std::string& text);

}  // namespace quire
