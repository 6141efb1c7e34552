// The SentencePiece library. sentencepiece_model.cpp uses it; where the library was not found when quire was
// configured, sentencepiece_missing.cpp takes its place, and every function throws an error that names the package.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace quire {

class SentencePieceModel {
 public:
  enum class PieceKind : uint8_t { text, byte, control, unknown };

  // Parses the bytes of a model file. Throws Error(data), without the file's name, when they are no model.
  static std::unique_ptr<SentencePieceModel> parse(std::string_view bytes);

  virtual ~SentencePieceModel() = default;
  virtual int32_t pieces() const = 0;
  // Returns the text as the model writes it: U+2581 for a space, "<0x0A>" for a byte.
  virtual std::string piece(int32_t id) const = 0;
  virtual PieceKind kind(int32_t id) const = 0;
  // Returns the id of a piece; nothing when the model does not have it.
  virtual std::optional<int32_t> find(std::string_view piece) const = 0;
  // Return the control pieces of the model that begin and end a text.
  virtual std::optional<int32_t> bos() const = 0;
  virtual std::optional<int32_t> eos() const = 0;
  // Appends ids. The text is UTF-8.
  virtual void encode(std::string_view text, std::vector<int32_t>& ids) const = 0;
};

inline constexpr size_t kLongestTabRun = 8;

struct SentencePieceTraining {
  int64_t vocabulary = 8000;  // all pieces: unknown, BOS, EOS, newline and 256 bytes are 260 of them, and runs of tabs
  std::string model = "unigram";
  double character_coverage = 0.9995;  // the share of characters with own pieces; the rest becomes bytes
  bool space_runs = false;             // learn pieces for several spaces, and add one for every run of up to eight tabs
};

// Returns the bytes of a model that keeps text as it is. Sentences have no newlines; nullptr ends them. The result does
// not depend on the machine. Throws Error(config) when training is impossible.
std::string train_sentencepiece(const SentencePieceTraining& options,
                                const std::function<const std::string*()>& next_sentence);

}  // namespace quire
