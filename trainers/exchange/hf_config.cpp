#include "trainers/exchange/hf_config.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/check.h"
#include "trainers/exchange/strict_json.h"

namespace quire {

namespace {

constexpr int64_t kMaxConfigBytes = int64_t{1} << 20;

// Keys of all architectures that say nothing about what the model computes when it reads: training, generation, and
// notes of the programs that wrote them.
constexpr std::array<std::string_view, 87> kIrrelevant{"_name_or_path",
                                                       "architectures",
                                                       "attention_dropout",
                                                       "attn_pdrop",
                                                       "resid_pdrop",
                                                       "embd_pdrop",
                                                       "hidden_dropout",
                                                       "classifier_dropout",
                                                       "classifier_dropout_prob",
                                                       "bos_token_id",
                                                       "eos_token_id",
                                                       "pad_token_id",
                                                       "sep_token_id",
                                                       "cls_token_id",
                                                       "mask_token_id",
                                                       "unk_token_id",
                                                       "decoder_start_token_id",
                                                       "forced_bos_token_id",
                                                       "forced_eos_token_id",
                                                       "torch_dtype",
                                                       "dtype",
                                                       "transformers_version",
                                                       "use_cache",
                                                       "initializer_range",
                                                       "pretraining_tp",
                                                       "id2label",
                                                       "label2id",
                                                       "num_labels",
                                                       "problem_type",
                                                       "task_specific_params",
                                                       "summary_activation",
                                                       "summary_first_dropout",
                                                       "summary_proj_to_labels",
                                                       "summary_type",
                                                       "summary_use_proj",
                                                       "output_attentions",
                                                       "output_hidden_states",
                                                       "output_scores",
                                                       "return_dict",
                                                       "return_dict_in_generate",
                                                       "use_bfloat16",
                                                       "chunk_size_feed_forward",
                                                       "torchscript",
                                                       "tokenizer_class",
                                                       "prefix",
                                                       "finetuning_task",
                                                       "max_length",
                                                       "min_length",
                                                       "do_sample",
                                                       "early_stopping",
                                                       "num_beams",
                                                       "num_beam_groups",
                                                       "diversity_penalty",
                                                       "temperature",
                                                       "top_k",
                                                       "top_p",
                                                       "typical_p",
                                                       "repetition_penalty",
                                                       "length_penalty",
                                                       "no_repeat_ngram_size",
                                                       "encoder_no_repeat_ngram_size",
                                                       "bad_words_ids",
                                                       "num_return_sequences",
                                                       "remove_invalid_values",
                                                       "exponential_decay_length_penalty",
                                                       "suppress_tokens",
                                                       "begin_suppress_tokens",
                                                       "pruned_heads",
                                                       "auto_map",
                                                       "gradient_checkpointing",
                                                       "keys_to_ignore_at_inference",
                                                       "attn_implementation",
                                                       "_attn_implementation",
                                                       "_attn_implementation_autoset",
                                                       "cache_implementation",
                                                       "transformers.js_config",
                                                       "unsloth_version",
                                                       "unsloth_fixed",
                                                       "is_llama_config",
                                                       "reorder_and_upcast_attn",
                                                       "tie_encoder_decoder",
                                                       "cross_attention_hidden_size",
                                                       "sep_token",
                                                       "tf_legacy_loss",
                                                       "model_type",
                                                       "license",
                                                       "ignore_keys_at_rope_validation"};

bool is_irrelevant(const std::string& key) {
  return std::find(kIrrelevant.begin(), kIrrelevant.end(), key) != kIrrelevant.end();
}

}  // namespace

bool is_neutral(const nlohmann::json& value) {
  if (value.is_null() || (value.is_boolean() && !value.get<bool>())) return true;
  if (value.is_number()) return value.get<double>() == 0;
  return (value.is_string() || value.is_structured()) && (value.empty() || value == "");
}

std::string shown(const nlohmann::json& value) {
  return shortened(value.dump(-1, ' ', false, nlohmann::json::error_handler_t::replace));
}

HfConfig::HfConfig(nlohmann::json json, std::string name) : json_(std::move(json)), name_(std::move(name)) {
  if (!json_.is_object()) fail(ErrorKind::data, "{}: is no JSON object", name_);
}

HfConfig HfConfig::read(const std::filesystem::path& file) {
  return {read_strict_json(file, kMaxConfigBytes), file.string()};
}

void HfConfig::refuse(const std::string& key, const std::string& why) const {
  const auto found = json_.find(key);
  fail(ErrorKind::data, "{}: {}{}: {}", name_, key, found == json_.end() ? std::string() : " " + shown(*found), why);
}

bool HfConfig::has(const std::string& key) const {
  const auto found = json_.find(key);
  return found != json_.end() && !found->is_null();
}

bool HfConfig::is_null(const std::string& key) const {
  return json_.contains(key) && json_.at(key).is_null();
}

const nlohmann::json* HfConfig::find(const std::string& key) {
  used_.insert(key);
  return has(key) ? &json_.at(key) : nullptr;
}

std::optional<int64_t> HfConfig::integer(const std::string& key, int64_t min, int64_t max) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool whole = value->is_number_integer() &&
                     (!value->is_number_unsigned() || value->get<uint64_t>() <= static_cast<uint64_t>(INT64_MAX));
  if (!whole) refuse(key, "is not an integer");
  const auto number = value->get<int64_t>();
  if (number < min || number > max) refuse(key, fmt::format("must be from {} to {}", min, max));
  return number;
}

int64_t HfConfig::required_integer(const std::string& key, int64_t min, int64_t max) {
  const std::optional<int64_t> value = integer(key, min, max);
  if (!value) refuse(key, "is missing");
  return *value;
}

std::optional<double> HfConfig::number(const std::string& key, double above) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_number()) refuse(key, "is not a number");
  const auto number = value->get<double>();
  if (!std::isfinite(number) || number <= above) refuse(key, fmt::format("must be a number above {}", above));
  return number;
}

bool HfConfig::flag(const std::string& key, bool otherwise) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return otherwise;
  if (!value->is_boolean()) refuse(key, "is neither true nor false");
  return value->get<bool>();
}

std::optional<std::string> HfConfig::text(const std::string& key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  if (!value->is_string()) refuse(key, "is not a text");
  return value->get<std::string>();
}

std::optional<std::vector<std::string>> HfConfig::texts(const std::string& key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool all =
      value->is_array() && std::all_of(value->begin(), value->end(), [](const auto& v) { return v.is_string(); });
  if (!all) refuse(key, "is not a list of texts");
  return value->get<std::vector<std::string>>();
}

std::optional<std::vector<int64_t>> HfConfig::integers(const std::string& key) {
  const nlohmann::json* value = find(key);
  if (value == nullptr) return std::nullopt;
  const bool all = value->is_array() &&
                   std::all_of(value->begin(), value->end(), [](const auto& v) { return v.is_number_integer(); });
  if (!all) refuse(key, "is not a list of integers");
  return value->get<std::vector<int64_t>>();
}

void HfConfig::require_known(const std::vector<std::string>& ignored) const {
  for (const auto& [key, value] : json_.items()) {
    if (used_.contains(key) || is_neutral(value) || is_irrelevant(key)) continue;
    if (std::find(ignored.begin(), ignored.end(), key) != ignored.end()) continue;
    refuse(key, fmt::format("is unknown here and may change what the model computes; if it does not, give --ignore {}",
                            shortened(key)));
  }
}

}  // namespace quire
