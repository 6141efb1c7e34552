#include "data/tokenizers/sentencepiece_model.h"

#include <sentencepiece_trainer.h>

#include <unordered_map>

#include "core/check.h"

namespace quire {

namespace {

// Shortens "Internal: ./src/trainer_interface.cc(660) [(vocab_size) == (pieces_size)] Vocabulary size too high ..." to
// the part that is not about the library's own source.
std::string reason_of(const sentencepiece::util::Status& status) {
  const std::string text = status.error_message();
  const size_t condition = text.rfind("] ");
  return condition == std::string::npos ? text : text.substr(condition + 2);
}

class LibraryModel : public SentencePieceModel {
 public:
  explicit LibraryModel(std::string_view bytes) {
    if (const auto status = processor_.LoadFromSerializedProto(bytes); !status.ok()) {
      fail(ErrorKind::data, "not a SentencePiece model, or a damaged one");
    }
  }
  int32_t pieces() const override { return processor_.GetPieceSize(); }
  std::string piece(int32_t id) const override { return processor_.IdToPiece(id); }
  PieceKind kind(int32_t id) const override {
    if (processor_.IsByte(id)) return PieceKind::byte;
    if (processor_.IsControl(id)) return PieceKind::control;
    return processor_.IsUnknown(id) ? PieceKind::unknown : PieceKind::text;
  }
  std::optional<int32_t> find(std::string_view piece) const override {
    const int id = processor_.PieceToId(piece);
    if (id < 0 || id >= pieces() || processor_.IdToPiece(id) != piece) return std::nullopt;
    return id;
  }
  std::optional<int32_t> bos() const override { return control(processor_.bos_id()); }
  std::optional<int32_t> eos() const override { return control(processor_.eos_id()); }
  void encode(std::string_view text, std::vector<int32_t>& ids) const override {
    std::vector<int> encoded;
    if (const auto status = processor_.Encode(text, &encoded); !status.ok()) {
      fail(ErrorKind::data, "SentencePiece cannot encode a text: {}", reason_of(status));
    }
    ids.insert(ids.end(), encoded.begin(), encoded.end());
  }

 private:
  std::optional<int32_t> control(int id) const {
    if (id < 0 || id >= pieces() || !processor_.IsControl(id)) return std::nullopt;
    return id;
  }

  sentencepiece::SentencePieceProcessor processor_;
};

// Returns the pieces that are given instead of learned. The trainer ends a piece at a tab, so only given pieces can
// contain tabs, as with the newline.
std::string given_pieces(bool tab_runs) {
  std::string pieces = "\n";
  for (size_t tabs = 1; tab_runs && tabs <= kLongestTabRun; ++tabs) pieces.append(",").append(tabs, '\t');
  return pieces;
}

class Sentences : public sentencepiece::SentenceIterator {
 public:
  explicit Sentences(const std::function<const std::string*()>& next) : next_(next), sentence_(next_()) {}
  bool done() const override { return sentence_ == nullptr; }
  void Next() override { sentence_ = next_(); }
  const std::string& value() const override { return *sentence_; }
  sentencepiece::util::Status status() const override { return {}; }

 private:
  const std::function<const std::string*()>& next_;
  const std::string* sentence_;
};

}  // namespace

std::unique_ptr<SentencePieceModel> SentencePieceModel::parse(std::string_view bytes) {
  return std::make_unique<LibraryModel>(bytes);
}

std::string train_sentencepiece(const SentencePieceTraining& options,
                                const std::function<const std::string*()>& next_sentence) {
  const std::unordered_map<std::string, std::string> settings{
      {"vocab_size", std::to_string(options.vocabulary)},
      {"model_type", options.model},
      {"character_coverage", fmt::format("{}", options.character_coverage)},
      // These options make text come back byte for byte.
      {"normalization_rule_name", "identity"},
      {"add_dummy_prefix", "false"},
      {"remove_extra_whitespaces", "false"},
      {"byte_fallback", "true"},
      {"allow_whitespace_only_pieces", options.space_runs ? "true" : "false"},
      {"user_defined_symbols", given_pieces(options.space_runs)},
      {"unk_id", "0"},
      {"bos_id", "1"},
      {"eos_id", "2"},
      {"pad_id", "-1"},
      // The trainer sums per thread, so the result depends on the number of threads, which is therefore fixed.
      {"num_threads", "4"},
      {"minloglevel", "2"},
  };
  Sentences sentences(next_sentence);
  std::string bytes;
  if (const auto status = sentencepiece::SentencePieceTrainer::Train(settings, &sentences, &bytes); !status.ok()) {
    std::string reason = reason_of(status);
    // The library's names of options that quire tokenizer train has as well.
    for (const auto& [name, own] :
         {std::pair{"--character_coverage", "--character-coverage"}, std::pair{" vocab_size", " --vocab-size"}}) {
      const size_t at = reason.find(name);
      if (at != std::string::npos) reason.replace(at, std::string_view(name).size(), own);
    }
    fail(ErrorKind::config, "the tokenizer cannot be trained: {}", reason);
  }
  return bytes;
}

}  // namespace quire
