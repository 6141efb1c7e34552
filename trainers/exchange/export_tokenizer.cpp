#include "trainers/exchange/export_tokenizer.h"

#include <charconv>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/json.h"

namespace quire {

namespace {

// SentencePiece models are stored as hexadecimal digits.
std::string bytes_of_digits(std::string_view digits) {
  std::string bytes;
  for (size_t i = 0; i + 1 < digits.size(); i += 2) {
    uint8_t byte = 0;
    std::from_chars(digits.data() + i, digits.data() + i + 2, byte, 16);
    bytes += static_cast<char>(byte);
  }
  return bytes;
}

// Returns the text of an id in a tokenizer.json, null without one.
nlohmann::json text_of(const nlohmann::json& tokenizer, int32_t id) {
  if (tokenizer.contains("added_tokens")) {
    for (const nlohmann::json& token : tokenizer.at("added_tokens")) {
      if (token.value("id", -1) == id) return token.at("content");
    }
  }
  if (tokenizer.contains("model") && tokenizer.at("model").contains("vocab")) {
    for (const auto& [text, number] : tokenizer.at("model").at("vocab").items()) {
      if (number == id) return text;
    }
  }
  return nullptr;
}

}  // namespace

void export_tokenizer(const std::string& serialised, int32_t bos, int32_t eos, const std::filesystem::path& folder) {
  write_file_durably(folder / "tokenizer.txt", serialised);
  if (serialised.starts_with("spm\n")) {
    write_file_durably(folder / "tokenizer.model", bytes_of_digits(std::string_view(serialised).substr(4)));
  }
  // "hf", the ids of BOS and EOS, and tokenizer.json.
  if (!serialised.starts_with("hf\n")) return;
  const size_t begin = serialised.find('\n', 3);
  if (begin == std::string::npos) return;
  const std::string text = serialised.substr(begin + 1);
  const nlohmann::json tokenizer = parse_json(text);
  nlohmann::ordered_json config{{"tokenizer_class", "PreTrainedTokenizerFast"}};
  try {
    if (const nlohmann::json token = text_of(tokenizer, bos); token.is_string()) config["bos_token"] = token;
    if (const nlohmann::json token = text_of(tokenizer, eos); token.is_string()) config["eos_token"] = token;
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::checkpoint, "tokenizer.txt: holds no tokenizer.json; use another checkpoint of the run");
  }
  write_file_durably(folder / "tokenizer.json", text);
  write_file_durably(folder / "tokenizer_config.json", config.dump(2) + "\n");
}

}  // namespace quire
