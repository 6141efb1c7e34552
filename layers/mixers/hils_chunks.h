// Says where the chunks of a pass lie, for the arithmetic of HiLS attention (hils_mix.h).
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "core/tensor.h"
#include "layers/mixers/hils_config.h"

namespace quire {

// The part of a document that lies in a row of a pass. A cell is one of the T positions of a row; a slot is a position
// of the document, landmarks included.
struct HilsSpan {
  int64_t row, begin, count;  // its row, first cell and number of cells
  int64_t slot;               // the slot of its first cell
  int64_t stored = 0;         // whole chunks before it that the row carries
  int64_t tail = 0;           // slots that the row carries of the chunk with which the span goes on
};

// A row has N places for stored chunks, of which the last ones are filled, `before` places for carried keys, and T
// cells. The carried keys are the stored chunks that windows reach, and then the begun chunk, both at the end of their
// places. Positions count from the beginning of the chunk in which a span begins; a landmark has that of the token
// behind it.
struct HilsTables {
  int64_t rows = 0, length = 0;
  int64_t stored = 0;     // N
  int64_t near = 0;       // chunks among the carried keys
  int64_t before = 0;     // places for carried keys
  int64_t own = 0;        // G: places for chunks that end in the pass, at least 1
  int64_t positions = 0;  // larger than all positions
  Tensor block;           // i32 [R, before + T]: the number of the chunk, -1 for places without a key
  Tensor first;           // i32 [R, T]: the number of the chunk in which the window begins
  Tensor marks;           // u8 [R, before + T]: 1 for landmarks
  Tensor position;        // i32 [R, T]
  Tensor place;           // i32 [R, T]: position counted from the beginning of the cell's own chunk
  Tensor regular;    // i32 [R, Hk, G, S - 1]: the regular keys of own chunks, as lines of [R, before + T, Hk]; -1: none
  Tensor marked;     // i32 [R, G, Hk]: the keys of their landmarks, in the same way
  Tensor spans;      // i32 [R G, 2]: the first regular key of own chunks among R (before + T), and how many; 0: none
  Tensor landmarks;  // i32 [R, G]: their cells; -1: none
  Tensor mark_position;   // i32 [R, G]: positions of the landmarks
  Tensor chunk_position;  // i32 [R, G]: positions at which the chunks begin
  Tensor candidates;      // u8 [R, 1, T, N + G]: chunks that the cell may choose
  Tensor terms;           // u8 [R, 1, T, K + 2]: which of its K choices, the window and the zero of softmax_one count
  int64_t chosen = 0;     // K
};

class HilsChunks {
 public:
  // spans: in the order of rows and cells.
  HilsChunks(const HilsConfig& config, int64_t rows, int64_t length, std::vector<HilsSpan> spans);

  // table(name, make) returns make(), or what it returned in this pass before.
  using TableMaker = std::function<Tensor(const std::string& name, const std::function<Tensor()>& make)>;
  HilsTables tables(Device device, int64_t key_heads, const TableMaker& table) const;

  int64_t stored() const { return stored_; }
  // Returns the stored chunks that windows reach: i32 [R, near], -1 for none.
  std::vector<int32_t> near_chunks() const;
  const std::vector<HilsSpan>& spans() const { return spans_; }
  // Returns the number, in its document, of the first chunk that may end in a span, and how many do.
  int64_t first_own(const HilsSpan& span) const {
    return (span.slot - whole_tail(span) + config_.chunk - 1) / config_.chunk;
  }
  int64_t count_own(const HilsSpan& span) const;

 private:
  // Returns the carried slots of the begun chunk if the row carries it from its beginning on.
  int64_t whole_tail(const HilsSpan& span) const { return span.tail == span.slot % config_.chunk ? span.tail : 0; }
  int64_t near_of(const HilsSpan& span) const;
  int64_t before() const { return (near_ > 0 ? near_ * config_.chunk + 1 : 0) + max_tail_; }

  struct ByKey {
    std::vector<int32_t> block;
    std::vector<uint8_t> marks;
  };
  struct ByCell {
    std::vector<int32_t> first, position, place;
  };
  struct ByChunk {
    std::vector<int32_t> begin;  // of the chunk, a place among the keys of its row
    std::vector<int32_t> landmarks, mark_position, chunk_position;
  };
  ByKey by_key() const;
  ByCell by_cell() const;
  ByChunk by_chunk() const;
  std::vector<int32_t> regular(int64_t key_heads) const;
  std::vector<int32_t> spans_of_keys() const;
  std::vector<int32_t> marked(int64_t key_heads) const;
  std::vector<uint8_t> candidates() const;
  std::vector<uint8_t> terms(int64_t chosen) const;
  // Calls body(span, first, own): `first` is the number of the chunk in which the span begins or of the first near one
  // among the keys, and own the place of its first own chunk.
  template <typename Body>
  void for_each(const Body& body) const;

  HilsConfig config_;
  int64_t rows_, length_;
  std::vector<HilsSpan> spans_;
  int64_t stored_ = 0, near_ = 0, max_tail_ = 0, own_ = 1;
};

}  // namespace quire
