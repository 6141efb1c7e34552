// What a SentencePiece model says about how it changes text before cutting it. The library does not tell, so this reads
// the model file, a protocol buffer: message ModelProto, its field normalizer_spec, of sentencepiece_model.proto.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace quire {

struct SentencePieceSpec {
  std::string normalization;  // name of the rules; "identity" has none
  bool has_rules = false;
  bool adds_prefix = true;         // a space in front of a text
  bool removes_whitespace = true;  // at both ends, and what repeats
};

// Bytes that are no protocol buffer are Error(data).
SentencePieceSpec read_sentencepiece_spec(std::string_view model);

}  // namespace quire
