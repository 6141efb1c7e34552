#include "data/batches/token_stream.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

TokenStream::TokenStream(std::span<const int64_t> offsets, const BatchOptions& options)
    : offsets_(offsets), insertion_(options.insertion) {
  QUIRE_CHECK(!options.only && documents() > 0 && options.data.subsequence > 0 && options.data.rows > 0,
              "token stream: {} documents, subsequence {}, rows {}", documents(), options.data.subsequence,
              options.data.rows);
}

int64_t TokenStream::begin_of(int64_t document) const {
  return offsets_[static_cast<size_t>(document)] + document;
}

int64_t TokenStream::tokens() const {
  return begin_of(documents());
}

void TokenStream::read(int64_t row, int64_t top, int64_t begin, int64_t count, int64_t place,
                       std::vector<Piece>& pieces) const {
  QUIRE_CHECK(top >= 0 && begin >= 0 && count >= 0 && begin + count <= insertion_.positions(tokens() - top),
              "token stream: positions {}..{} after token {} of {}", begin, begin + count, top, tokens());
  // An inserted token belongs to the document of the token before it.
  const int64_t first = top + insertion_.tokens_before(begin) - (insertion_.is_inserted(begin) ? 1 : 0);
  // A binary search for the last document that begins at or before `first`.
  int64_t document = 0;
  for (int64_t end = documents(); end - document > 1;) {
    const int64_t middle = document + (end - document) / 2;
    (begin_of(middle) <= first ? document : end) = middle;
  }
  for (int64_t read = 0; read < count; ++document) {
    const int64_t at = begin + read;
    const int64_t end = insertion_.position_of(begin_of(document + 1) - top);
    const int64_t here = std::min(count - read, end - at);
    pieces.push_back({.row = row,
                      .position = read,
                      .count = here,
                      .document = document,
                      .offset = top + insertion_.tokens_before(at) - begin_of(document),
                      .place = place + read,
                      .phase = at,
                      .stream = true});
    read += here;
  }
}

Cursor cursor_of_steps(int64_t rows) {
  Cursor cursor;
  cursor.rows.resize(static_cast<size_t>(rows));
  return cursor;
}

void check_cursor_of_steps(const Cursor& cursor, int64_t rows) {
  if (static_cast<int64_t>(cursor.rows.size()) != rows) {
    fail(ErrorKind::checkpoint, "the data cursor has {} rows, the run has {}", cursor.rows.size(), rows);
  }
  const bool counts_steps =
      std::all_of(cursor.rows.begin(), cursor.rows.end(), [](const RowCursor& row) { return row == RowCursor{}; });
  if (!counts_steps || cursor.next_place < 0) {
    fail(ErrorKind::checkpoint, "the data cursor is not one of windows or columns: was data.sampling changed?");
  }
}

}  // namespace quire
