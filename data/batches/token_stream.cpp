#include "data/batches/token_stream.h"

#include <algorithm>

#include "core/check.h"

namespace quire {

TokenStream::TokenStream(std::span<const int64_t> offsets, const BatchOptions& options)
    : offsets_(options.documents ? offsets.first(static_cast<size_t>(*options.documents) + 1) : offsets) {
  QUIRE_CHECK(documents() > 0 && options.subsequence > 0 && options.rows > 0,
              "token stream: {} documents, subsequence {}, rows {}", documents(), options.subsequence, options.rows);
}

int64_t TokenStream::begin_of(int64_t document) const {
  return offsets_[static_cast<size_t>(document)] + document;
}

int64_t TokenStream::positions() const {
  return begin_of(documents());
}

void TokenStream::read(int64_t row, int64_t begin, int64_t count, int64_t place, std::vector<Piece>& pieces) const {
  QUIRE_CHECK(begin >= 0 && count >= 0 && begin + count <= positions(), "token stream: positions {}..{} of {}", begin,
              begin + count, positions());
  // The last document that begins at `begin` or before.
  int64_t document = 0;
  for (int64_t end = documents(); end - document > 1;) {
    const int64_t middle = document + (end - document) / 2;
    (begin_of(middle) <= begin ? document : end) = middle;
  }
  for (int64_t read = 0; read < count; ++document) {
    const int64_t offset = begin + read - begin_of(document);
    const int64_t here = std::min(count - read, begin_of(document + 1) - begin - read);
    pieces.push_back(
        {.row = row, .position = read, .count = here, .document = document, .offset = offset, .stream = place + read});
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
