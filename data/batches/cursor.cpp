#include "data/batches/cursor.h"

#include <nlohmann/json.hpp>

#include "core/check.h"

namespace quire {

std::string cursor_to_json(const Cursor& cursor) {
  nlohmann::ordered_json rows = nlohmann::ordered_json::array();
  for (const RowCursor& row : cursor.rows) rows.push_back({row.place, row.offset});
  return nlohmann::ordered_json{{"next_place", cursor.next_place}, {"rows", rows}}.dump();
}

Cursor cursor_from_json(const std::string& text) {
  try {
    const nlohmann::json json = nlohmann::json::parse(text);
    Cursor cursor;
    cursor.next_place = json.at("next_place").get<int64_t>();
    for (const nlohmann::json& row : json.at("rows")) {
      cursor.rows.push_back({.place = row.at(0).get<int64_t>(), .offset = row.at(1).get<int64_t>()});
    }
    return cursor;
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::checkpoint, "the data cursor cannot be read: {}", text);
  }
}

}  // namespace quire
