#include "data/tokenizers/special_names.h"

#include <algorithm>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/json.h"
#include "data/tokenizers/bpe_spec_reader.h"

namespace quire {

namespace {

using nlohmann::ordered_json;

constexpr const char* kEndOfText = "<|endoftext|>";

ordered_json read_object(const std::filesystem::path& path) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) return ordered_json::object();
  const std::string text = read_text_file(path, {.kind = ErrorKind::data, .max_bytes = kLargestTokenizerFile});
  ordered_json value = parse_json<ordered_json>(text);
  if (!value.is_object()) fail(ErrorKind::data, "{}: not a JSON object", path.string());
  return value;
}

// Reads "text" or {"content": "text"}. Returns true when the file says something, which may be that there is none.
bool read_name(const ordered_json& file, const char* key, const std::filesystem::path& path, SpecialNames::Name& name) {
  const auto found = file.find(key);
  if (found == file.end()) return false;
  const ordered_json& value = found->is_object() && found->contains("content") ? (*found)["content"] : *found;
  if (value.is_null()) return true;
  if (!value.is_string() || value.get_ref<const std::string&>().empty()) {
    fail(ErrorKind::data, "{}: {} is neither a text nor an object with a content", path.string(), key);
  }
  name.text = value.get<std::string>();
  return true;
}

// Reads an id, or the first of a list of ids.
void read_id(const ordered_json& file, const char* key, const std::filesystem::path& path, SpecialNames::Name& name) {
  const auto found = file.find(key);
  if (found == file.end() || found->is_null()) return;
  const ordered_json& value = found->is_array() && !found->empty() ? found->front() : *found;
  try {
    name.id = json_integer(value);
  } catch (const ordered_json::exception&) {
    fail(ErrorKind::data, "{}: {} is no id", path.string(), key);
  }
}

int32_t find_token(const BpeSpec& spec, const std::string& text) {
  for (const AddedToken& token : spec.added) {
    if (token.content == text) return token.id;
  }
  const auto found = std::find(spec.tokens.begin(), spec.tokens.end(), text);
  return found == spec.tokens.end() ? -1 : static_cast<int32_t>(found - spec.tokens.begin());
}

void add_token(std::string& content, int64_t id, const std::string& text) {
  ordered_json file = parse_json<ordered_json>(content);
  ordered_json& tokens = file["added_tokens"];
  if (!tokens.is_array()) tokens = ordered_json::array();
  tokens.push_back({{"id", id},
                    {"content", text},
                    {"single_word", false},
                    {"lstrip", false},
                    {"rstrip", false},
                    {"normalized", false},
                    {"special", true}});
  content = file.dump();
}

}  // namespace

SpecialNames read_special_names(const std::filesystem::path& folder) {
  SpecialNames names;
  const std::filesystem::path tokenizer_path = folder / "tokenizer_config.json";
  const ordered_json tokenizer = read_object(tokenizer_path);
  const bool bos = read_name(tokenizer, "bos_token", tokenizer_path, names.bos);
  const bool eos = read_name(tokenizer, "eos_token", tokenizer_path, names.eos);
  if (bos && eos) return names;
  const std::filesystem::path config_path = folder / "config.json";
  const ordered_json config = read_object(config_path);
  if (!bos) read_id(config, "bos_token_id", config_path, names.bos);
  if (!eos) read_id(config, "eos_token_id", config_path, names.eos);
  return names;
}

SpecialIds resolve_special_names(const SpecialNames& names, std::string& content) {
  const BpeSpec spec = read_bpe_spec(content);
  int64_t next = spec.vocabulary;
  std::string added;  // the name that was added for EOS
  const auto resolve = [&](const SpecialNames::Name& name, int64_t otherwise) -> int32_t {
    if (name.id) {
      if (*name.id < next) return static_cast<int32_t>(*name.id);
      fail(ErrorKind::data, "config.json names the id {} for BOS or EOS, but there are {} ids", *name.id, next);
    }
    if (!name.text) return static_cast<int32_t>(otherwise);
    if (*name.text == added) return static_cast<int32_t>(spec.vocabulary);
    const int32_t id = find_token(spec, *name.text);
    const bool is_added = std::any_of(spec.added.begin(), spec.added.end(),
                                      [&](const AddedToken& token) { return token.content == *name.text; });
    if (!is_added) add_token(content, id >= 0 ? id : next, *name.text);
    if (id >= 0) return id;
    added = added.empty() ? *name.text : added;
    return static_cast<int32_t>(next++);
  };
  SpecialNames::Name eos = names.eos;
  if (!eos.given() && find_token(spec, kEndOfText) >= 0) eos.text = kEndOfText;
  if (!eos.given()) {
    fail(ErrorKind::data,
         "no EOS: neither tokenizer_config.json (eos_token) nor config.json (eos_token_id) beside it names one, and it "
         "has no token {}",
         kEndOfText);
  }
  SpecialIds ids;
  ids.eos = resolve(eos, -1);
  ids.bos = names.bos.text && names.bos.text == eos.text ? ids.eos : resolve(names.bos, ids.eos);
  return ids;
}

}  // namespace quire
