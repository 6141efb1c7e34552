// Models that cannot be imported are refused by name, before anything is written.
#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "tests/exchange/exchange_folder.h"
#include "tests/support/expect_error.h"
#include "trainers/exchange/import.h"
#include "trainers/exchange/safetensors_writer.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

using Json = nlohmann::ordered_json;

// A Llama of one layer whose weights are zeros; each test damages a copy of it.
class Refusals : public ::testing::Test {
 protected:
  Refusals() {
    config_ = {{"model_type", "llama"},
               {"hidden_size", 4},
               {"num_hidden_layers", 1},
               {"num_attention_heads", 2},
               {"intermediate_size", 6},
               {"vocab_size", 11},
               {"max_position_embeddings", 8},
               {"tie_word_embeddings", false},
               {"bos_token_id", 0},
               {"eos_token_id", Json::array({1, 2})}};
    tensors_ = {{"model.embed_tokens.weight", StoredType::f32, {11, 4}},
                {"model.norm.weight", StoredType::f32, {4}},
                {"lm_head.weight", StoredType::f32, {11, 4}}};
    for (const char* name : {"q", "k", "v", "o"}) {
      tensors_.push_back({fmt::format("model.layers.0.self_attn.{}_proj.weight", name), StoredType::f32, {4, 4}});
    }
    for (const char* name : {"input_layernorm", "post_attention_layernorm"}) {
      tensors_.push_back({fmt::format("model.layers.0.{}.weight", name), StoredType::f32, {4}});
    }
    tensors_.push_back({"model.layers.0.mlp.gate_proj.weight", StoredType::f32, {6, 4}});
    tensors_.push_back({"model.layers.0.mlp.up_proj.weight", StoredType::f32, {6, 4}});
    tensors_.push_back({"model.layers.0.mlp.down_proj.weight", StoredType::f32, {4, 6}});
  }
  PlannedTensor& tensor(const std::string& name) {
    return *std::find_if(tensors_.begin(), tensors_.end(), [&](const PlannedTensor& t) { return t.name == name; });
  }
  void write(std::byte fill_of_head = std::byte{0}) {
    fs::create_directories(folder_ / "model");
    write_all(folder_ / "model/config.json", config_.dump());
    SafetensorsWriter writer(folder_ / "model/model.safetensors", in_file_order(tensors_));
    for (const PlannedTensor& planned : tensors_) {
      const std::byte value = planned.name == "lm_head.weight" ? fill_of_head : std::byte{0};
      writer.write(planned.name, 0, std::vector<std::byte>(static_cast<size_t>(planned.bytes()), value));
    }
    writer.finish();
  }
  ImportReport import() { return import_model({.folder = folder_ / "model", .output = folder_ / "run"}); }
  void expect_refused(const std::string& message) {
    write();
    EXPECT_ERROR(import(), ErrorKind::data, message);
    // Nothing but the model is there.
    EXPECT_EQ(std::distance(fs::directory_iterator(folder_.path()), fs::directory_iterator()), 1);
  }
  void expect_key_refused(const char* key, const Json& value, const std::string& message) {
    const Json before = config_;
    config_[key] = value;
    expect_refused(std::string(key) + " ");
    expect_refused(message);
    config_ = before;
  }

  TemporaryDirectory folder_{TemporaryDirectory::fast_parent()};
  Json config_;
  std::vector<PlannedTensor> tensors_;
};

TEST_F(Refusals, TheModelItselfIsImported) {
  write();
  const ImportReport report = import();
  EXPECT_EQ(report.tensors, 12);
  EXPECT_EQ(report.tokenizer, "ids");
  EXPECT_FALSE(report.tokenizer_was_found);
}

TEST_F(Refusals, TensorsThatAreMissingLeftOverOrMisshapen) {
  const std::vector<PlannedTensor> whole = tensors_;
  for (size_t i = 0; i < whole.size(); ++i) {
    tensors_ = whole;
    tensors_.erase(tensors_.begin() + static_cast<std::ptrdiff_t>(i));
    expect_refused(whole[i].name + " is missing");
    tensors_ = whole;
    tensors_[i].shape.push_back(1);
    expect_refused(whole[i].name + " is [");
    tensors_ = whole;
    tensors_[i].type = StoredType::i32;
    expect_refused(whole[i].name + " is I32");
  }
  for (const char* name : {"model.layers.1.input_layernorm.weight", "model.layers.00.input_layernorm.weight", "extra",
                           "model.layers.0.self_attn.q_proj.bias", "model.layers.1.self_attn.rotary_emb.inv_freq"}) {
    tensors_ = whole;
    tensors_.push_back({name, StoredType::f32, {4}});
    expect_refused(std::string(name) + " is left over");
  }
  tensors_ = whole;
  tensors_.push_back({"model.layers.0.self_attn.rotary_emb.inv_freq", StoredType::f32, {1}});
  write();
  EXPECT_EQ(import().left_out, 1);
}

TEST_F(Refusals, AHeadBesideTiedEmbeddingsMustEqualThem) {
  config_["tie_word_embeddings"] = true;
  write(std::byte{1});
  EXPECT_ERROR(import(), ErrorKind::data, "lm_head.weight differs from model.embed_tokens.weight");
  write(std::byte{0});
  EXPECT_NO_THROW(import());
}

TEST_F(Refusals, KeysThatSayWhatQuireDoesNotHave) {
  expect_key_refused("model_type", "mamba", "is not supported");
  expect_key_refused("num_local_experts", 8, "mixtures of experts");
  expect_key_refused("attn_logit_softcapping", 50.0, "softcapping");
  expect_key_refused("quantization_config", {{"bits", 4}}, "quantised");
  expect_key_refused("rope_interleaved", true, "halves");
  expect_key_refused("hidden_act", "relu2", "is not supported");
  expect_key_refused("kv_lora_rank", 512, "latent attention");
  expect_key_refused("residual_multiplier", 0.22, "is unknown here");
  expect_key_refused("sliding_window", 4096, "is unknown here");
  expect_key_refused("hidden_size", "4", "is not an integer");
  expect_key_refused("hidden_size", nullptr, "is missing");
  expect_key_refused("num_key_value_heads", 3, "does not divide");
  expect_key_refused("head_dim", 3, "even number");
  expect_key_refused("rms_norm_eps", -1, "above 0");
  expect_key_refused("tie_word_embeddings", 1, "neither true nor false");
  expect_key_refused("layer_types", {"chunked_attention"}, "is not supported");
  config_["residual_multiplier"] = 1.5;
  write();
  EXPECT_NO_THROW(
      import_model({.folder = folder_ / "model", .output = folder_ / "run", .ignored = {"residual_multiplier"}}));
}

TEST_F(Refusals, RopeSettingsThatContradictEachOther) {
  config_["rope_theta"] = 500.0;
  expect_key_refused("rope_parameters", {{"rope_type", "default"}, {"rope_theta", 501.0}}, "contradict each other");
  config_["rope_scaling"] = {{"type", "linear"}, {"factor", 2.0}};
  expect_key_refused("rope_parameters", {{"rope_type", "linear"}, {"factor", 4.0}}, "contradict each other");
  expect_key_refused("rope_scaling", {{"type", "linear"}, {"rope_type", "yarn"}, {"factor", 2.0}}, "differ");
  expect_key_refused("rope_scaling", {{"type", "spiral"}}, "is no kind");
  expect_key_refused("rope_scaling", {{"type", "linear"}}, "needs factor");
  expect_key_refused("rope_scaling", {{"type", "linear"}, {"factor", 2.0}, {"slope", 1}}, "slope is no option");
}

TEST_F(Refusals, ConfigurationsThatAreNone) {
  write();
  for (const auto& [text, message] : std::vector<std::pair<std::string, std::string>>{
           {"", "is not JSON"},
           {"[]", "is no JSON object"},
           {"{\"a\": NaN}", "is not JSON"},
           {R"({"model_type": "llama", "model_type": "gpt2"})", "occurs twice"},
           {R"({"a": )" + std::string(10000, '[') + "}", "nested more than"},
           {"{}", "model_type"}}) {
    write_all(folder_ / "model/config.json", text);
    EXPECT_ERROR(import(), ErrorKind::data, message);
  }
  fs::remove(folder_ / "model/config.json");
  EXPECT_ERROR(import(), ErrorKind::data, "config.json");
}

}  // namespace
}  // namespace quire::test
