#include "data/tokenizers/bpe_spec_reader.h"

#include <algorithm>
#include <unordered_map>

#include "core/check.h"
#include "core/json.h"
#include "data/tokenizers/bpe_components.h"

namespace quire {

namespace {

using nlohmann::json;
using TokenIds = std::unordered_map<std::string_view, int32_t>;

// Tokenizers have few ids that stand for nothing; a file with many would take memory that nothing uses.
constexpr int64_t kUnusedIds = 4096;

int32_t token_id(const json& value, const std::string& token) {
  try {
    const int64_t id = json_integer(value);
    if (id < static_cast<int64_t>(kLargestVocabulary)) return static_cast<int32_t>(id);
  } catch (const json::exception&) {
  }
  fail(ErrorKind::data, "token \"{}\" has the id {}, which is not a whole number below {}", token,
       shortened(value.dump()), kLargestVocabulary);
}

void require_token_size(std::string_view token) {
  if (token.size() > kLongestToken) {
    fail(ErrorKind::data, "token \"{}\" has more than {} bytes", token, kLongestToken);
  }
}

// Reads {"token": id, ...}. Ids by text refer to the keys of the file.
TokenIds read_vocabulary(const JsonFields& model, BpeSpec& spec) {
  const json& vocabulary = model.at("vocab");
  if (!vocabulary.is_object()) fail(ErrorKind::data, "model: vocab is not an object of tokens and ids");
  if (vocabulary.size() > kLargestVocabulary)
    fail(ErrorKind::data, "model: vocab has more than {} tokens", kLargestVocabulary);
  if (vocabulary.empty()) fail(ErrorKind::data, "model: vocab is empty");
  TokenIds ids;
  ids.reserve(vocabulary.size());
  for (const auto& [token, value] : vocabulary.items()) {
    require_token_size(token);
    const int32_t id = token_id(value, token);
    spec.vocabulary = std::max<int64_t>(spec.vocabulary, id + 1);
    if (spec.vocabulary > static_cast<int64_t>(2 * vocabulary.size()) + kUnusedIds) {
      fail(ErrorKind::data, "token \"{}\" has the id {}, but there are {} tokens", token, id, vocabulary.size());
    }
  }
  spec.tokens.resize(static_cast<size_t>(spec.vocabulary));
  std::vector<bool> taken(spec.tokens.size());
  for (auto at = vocabulary.begin(); at != vocabulary.end(); ++at) {
    const int32_t id = token_id(at.value(), at.key());
    const auto index = static_cast<size_t>(id);
    if (taken[index]) {
      fail(ErrorKind::data, "id {} stands for two tokens, \"{}\" and \"{}\"", id, spec.tokens[index], at.key());
    }
    taken[index] = true;
    spec.tokens[index] = at.key();
    ids.emplace(at.key(), id);
  }
  return ids;
}

// Reads "a b" or ["a", "b"].
std::pair<std::string_view, std::string_view> merge_parts(const json& merge, size_t rank) {
  if (merge.is_string()) {
    const std::string_view text = merge.get_ref<const std::string&>();
    const size_t space = text.find(' ');
    if (space != std::string_view::npos && text.find(' ', space + 1) == std::string_view::npos) {
      return {text.substr(0, space), text.substr(space + 1)};
    }
  } else if (merge.is_array() && merge.size() == 2 && merge[0].is_string() && merge[1].is_string()) {
    return {merge[0].get_ref<const std::string&>(), merge[1].get_ref<const std::string&>()};
  }
  fail(ErrorKind::data, "merge {} is not a pair of tokens: {}", rank, shortened(merge.dump()));
}

void read_merges(const JsonFields& model, const TokenIds& ids, BpeSpec& spec) {
  const json& merges = model.list("merges");
  if (merges.size() > 8 * kLargestVocabulary) fail(ErrorKind::data, "model: there are {} merges", merges.size());
  spec.merges.reserve(merges.size());
  std::string whole;
  for (size_t rank = 0; rank < merges.size(); ++rank) {
    const auto [left, right] = merge_parts(merges[rank], rank);
    whole.assign(left).append(right);
    const auto id_of = [&](std::string_view token) {
      const auto found = ids.find(token);
      if (found != ids.end()) return found->second;
      fail(ErrorKind::data, "merge {} of \"{}\" and \"{}\": \"{}\" is not in the vocabulary", rank, left, right, token);
    };
    spec.merges.push_back({id_of(left), id_of(right), id_of(whole)});
  }
}

// Options of the model that change ids and that quire does not have.
void refuse_unknown_model(const JsonFields& model) {
  const std::string type = model.text("type", "BPE");
  if (type != "BPE") fail(ErrorKind::data, "model \"{}\" is unknown to quire, which knows BPE", type);
  if (model.has("dropout") && model.at("dropout") != 0) {
    fail(ErrorKind::data, "model: dropout is set; quire encodes a text in one way");
  }
  for (const char* key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    if (!model.text(key, "").empty()) fail(ErrorKind::data, "model: {} is set, which quire does not have", key);
  }
}

void read_model(const json& file, BpeSpec& spec) {
  const JsonFields model(JsonFields(file, "the file").at("model"), "model");
  refuse_unknown_model(model);
  const TokenIds ids = read_vocabulary(model, spec);
  read_merges(model, ids, spec);
  spec.ignore_merges = model.flag("ignore_merges", false);
  spec.byte_fallback = model.flag("byte_fallback", false);
  spec.fuse_unknown = model.flag("fuse_unk", false);
  if (const std::string unknown = model.text("unk_token", ""); !unknown.empty()) {
    const auto found = ids.find(unknown);
    if (found == ids.end()) fail(ErrorKind::data, "model: unk_token \"{}\" is not in the vocabulary", unknown);
    spec.unknown = found->second;
  }
}

AddedToken read_added_token(const json& value) {
  const JsonFields fields(value, "added token");
  AddedToken token;
  token.content = fields.text("content");
  if (token.content.empty()) fail(ErrorKind::data, "an added token is empty");
  require_token_size(token.content);
  token.id = token_id(fields.at("id"), token.content);
  token.special = fields.flag("special", false);
  token.single_word = fields.flag("single_word", false);
  token.lstrip = fields.flag("lstrip", false);
  token.rstrip = fields.flag("rstrip", false);
  token.normalized = fields.flag("normalized", !token.special);
  return token;
}

void read_added_tokens(const json& file, BpeSpec& spec) {
  const JsonFields fields(file, "the file");
  if (!fields.has("added_tokens")) return;
  const json& list = fields.list("added_tokens");
  if (list.size() > kLargestVocabulary) fail(ErrorKind::data, "there are {} added tokens", list.size());
  std::unordered_map<std::string, int32_t> contents;
  std::unordered_map<int32_t, std::string> ids;
  for (const json& value : list) {
    AddedToken token = read_added_token(value);
    const std::string& in_model =
        static_cast<size_t>(token.id) < spec.tokens.size() ? spec.tokens[static_cast<size_t>(token.id)] : std::string();
    if (!in_model.empty() && in_model != token.content) {
      fail(ErrorKind::data, "id {} stands for two tokens, \"{}\" and \"{}\"", token.id, in_model, token.content);
    }
    if (!ids.emplace(token.id, token.content).second) {
      fail(ErrorKind::data, "id {} stands for two tokens, \"{}\" and \"{}\"", token.id, ids[token.id], token.content);
    }
    if (!contents.emplace(token.content, token.id).second) {
      fail(ErrorKind::data, "added token \"{}\" occurs twice", token.content);
    }
    spec.vocabulary = std::max<int64_t>(spec.vocabulary, token.id + 1);
    spec.added.push_back(std::move(token));
  }
  if (spec.vocabulary > 2 * static_cast<int64_t>(spec.tokens.size() + spec.added.size()) + kUnusedIds) {
    fail(ErrorKind::data, "an added token has the id {}, but there are {} tokens", spec.vocabulary - 1,
         spec.tokens.size() + spec.added.size());
  }
  for (size_t id = 0; id < spec.tokens.size(); ++id) {
    const auto found = contents.find(spec.tokens[id]);
    if (found != contents.end() && found->second != static_cast<int32_t>(id)) {
      fail(ErrorKind::data, "added token \"{}\" has the ids {} and {}", spec.tokens[id], id, found->second);
    }
  }
}

}  // namespace

BpeSpec read_bpe_spec(std::string_view text) {
  std::string reason;
  const json file = parse_json(text, &reason);
  if (!file.is_object())
    fail(ErrorKind::data, "not the JSON of a tokenizer: {}", reason.empty() ? "it is no object" : reason);
  BpeSpec spec;
  read_model(file, spec);
  read_added_tokens(file, spec);
  read_normalizer(file, spec);
  read_pre_tokenizer(file, spec);
  read_post_processor(file);
  read_decoder(file, spec);
  return spec;
}

}  // namespace quire
