// How a SentencePiece model changes text before cutting it. The library has no function for this, so quire reads the
// model file, a protocol buffer: message ModelProto, its field normalizer_spec, of sentencepiece_model.proto.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct SentencePieceSpec {
  std::string normalization;  // name of the rules; "identity" has none
  bool has_rules = false;
  bool adds_prefix = true;         // a space in front of a text
  bool removes_whitespace = true;  // at both ends, and repeated spaces
};

// Throws Error(data) for bytes that are no protocol buffer.
SentencePieceSpec read_sentencepiece_spec(std::string_view model);

}  // namespace quire
