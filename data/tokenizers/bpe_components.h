// Reads the components around the model of a tokenizer.json.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "data/tokenizers/bpe_spec.h"

namespace quire {

// An object of a file, whose fields are checked as they are read: a field of another type is Error(data) naming
// `where`.
class JsonFields {
 public:
  JsonFields(const nlohmann::json& object, std::string where);

  const std::string& where() const { return where_; }
  bool has(const char* key) const;  // false also for null
  const nlohmann::json& at(const char* key) const;
  const nlohmann::json& list(const char* key) const;
  std::string text(const char* key) const;
  std::string text(const char* key, const std::string& otherwise) const;
  bool flag(const char* key, bool otherwise) const;
  int64_t integer(const char* key) const;

 private:
  const nlohmann::json& object_;
  std::string where_;
};

void read_normalizer(const nlohmann::json& file, BpeSpec& spec);
void read_pre_tokenizer(const nlohmann::json& file, BpeSpec& spec);
void read_post_processor(const nlohmann::json& file);  // it adds BOS and EOS, which quire does itself
void read_decoder(const nlohmann::json& file, BpeSpec& spec);

}  // namespace quire
