#include "data/batches/cursor.h"

#include "core/check.h"
#include "core/json.h"

namespace quire {

std::string cursor_to_json(const Cursor& cursor) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const RowCursor& row : cursor.rows) rows.push_back({row.place, row.offset});
  return nlohmann::ordered_json{{"next_place", cursor.next_place}, {"rows", rows}}.dump();
}

Cursor cursor_from_json(const std::string& text) {
  try {
    const nlohmann::json json = parse_json(text);
    Cursor cursor;
    cursor.next_place = json_integer(json.at("next_place"));
    for (const nlohmann::json& row : json.at("rows")) {
      cursor.rows.push_back({.place = json_integer(row.at(0), -1), .offset = json_integer(row.at(1))});
    }
    return cursor;
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::checkpoint, "the data cursor cannot be read: {}", text);
  }
}

}  // namespace quire
