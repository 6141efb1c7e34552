#include "data/batches/dealing.h"

#include <algorithm>
#include <queue>
#include <tuple>

#include "core/check.h"
#include "data/corpus/split_list.h"

namespace quire {

namespace {

std::shared_ptr<const ReadingList> list_of(std::span<const int64_t> offsets, const BatchOptions& options) {
  if (!options.only) return std::make_shared<SplitList>(offsets, options.seed, options.shuffle);
  QUIRE_CHECK(!options.endless && !options.shuffle, "dealing: chosen documents are read once, as they come");
  return std::make_shared<ChosenList>(offsets, *options.only, options.last_tokens);
}

}  // namespace

Dealing::Dealing(std::span<const int64_t> offsets, const BatchOptions& options)
    : Dealing(list_of(offsets, options), options) {}

Dealing::Dealing(std::shared_ptr<const ReadingList> list, const BatchOptions& options)
    : list_(std::move(list)), options_(options) {
  QUIRE_CHECK(options.data.subsequence > 0 && options.data.rows > 0 && options.alignment > 0,
              "dealing: subsequence {}, rows {}, alignment {}", options.data.subsequence, options.data.rows,
              options.alignment);
}

Cursor Dealing::start() const {
  Cursor cursor;
  cursor.rows.resize(static_cast<size_t>(options_.data.rows));
  return cursor;
}

int64_t Dealing::positions(int64_t place) const {
  return options_.insertion.positions(list_->tokens_with_bos(list_->document(place)));
}

bool Dealing::exhausted(const Cursor& cursor) const {
  return !options_.endless && cursor.next_place >= list_->documents();
}

void Dealing::check(const Cursor& cursor) const {
  if (static_cast<int64_t>(cursor.rows.size()) != options_.data.rows) {
    fail(ErrorKind::checkpoint, "the data cursor has {} rows, the run has {}", cursor.rows.size(), options_.data.rows);
  }
  bool fits = cursor.next_place >= 0 && (options_.endless || cursor.next_place <= list_->documents());
  for (const RowCursor& row : cursor.rows) {
    if (row.place == -1) {
      fits = fits && row.offset == 0;
    } else {
      fits = fits && row.place >= 0 && row.place < cursor.next_place && row.offset > 0 &&
             row.offset < positions(row.place);
    }
  }
  if (!fits) fail(ErrorKind::checkpoint, "the data cursor does not fit the corpus: was the corpus changed?");
}

std::vector<Piece> Dealing::step(Cursor& cursor) const {
  std::vector<Piece> pieces;
  using Free = std::pair<int64_t, int64_t>;  // position, row
  std::priority_queue<Free, std::vector<Free>, std::greater<>> free;

  const auto read = [&](int64_t row, int64_t position) {
    RowCursor& at = cursor.rows[static_cast<size_t>(row)];
    const int64_t length = positions(at.place);
    const int64_t count = std::min(options_.data.subsequence - position, length - at.offset);
    pieces.push_back({.row = row,
                      .position = position,
                      .count = count,
                      .document = list_->document(at.place),
                      .offset = options_.insertion.tokens_before(at.offset),
                      .place = at.offset,
                      .phase = at.offset});
    at.offset += count;
    if (at.offset < length) return;
    at = {};
    if (options_.data.pack == Pack::pad) return;
    const int64_t steps = (position + count + options_.alignment - 1) / options_.alignment;
    // A row that is full, or has no aligned position left, is free at the beginning of the next step.
    if (steps * options_.alignment < options_.data.subsequence) free.emplace(steps * options_.alignment, row);
  };

  for (int64_t row = 0; row < options_.data.rows; ++row) {
    if (cursor.rows[static_cast<size_t>(row)].place < 0) {
      free.emplace(0, row);
    } else {
      read(row, 0);
    }
  }
  // Rows that enter the queue come after the one that is served, because positions only grow.
  while (!free.empty() && !exhausted(cursor)) {
    const auto [position, row] = free.top();
    free.pop();
    cursor.rows[static_cast<size_t>(row)].place = cursor.next_place++;
    read(row, position);
  }
  std::sort(pieces.begin(), pieces.end(),
            [](const Piece& a, const Piece& b) { return std::tie(a.row, a.position) < std::tie(b.row, b.position); });
  return pieces;
}

bool Dealing::done(const Cursor& cursor) const {
  return exhausted(cursor) &&
         std::all_of(cursor.rows.begin(), cursor.rows.end(), [](const RowCursor& row) { return row.place < 0; });
}

}  // namespace quire
