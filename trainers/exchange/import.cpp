#include "trainers/exchange/import.h"

#include <algorithm>

#include "core/check.h"
#include "core/files/file_io.h"
#include "data/tokenizers/ids_tokenizer.h"
#include "data/tokenizers/make_tokenizer.h"
#include "trainers/checkpoint/checkpoint_meta.h"
#include "trainers/exchange/hf_config.h"
#include "trainers/exchange/new_run.h"
#include "trainers/exchange/own_layout.h"
#include "trainers/exchange/weight_plan.h"
#include "trainers/setup/model.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

// Longer subsequences take much memory in training; quire eval takes others.
constexpr int64_t kUsualSubsequence = 2048;

bool has_file(const fs::path& path) {
  std::error_code ignored;
  return fs::exists(path, ignored);
}

// The first id of bos_token_id or eos_token_id, which may be a list.
std::optional<int64_t> special_id(HfConfig& config, const std::string& key, int64_t vocabulary) {
  const nlohmann::json* value = config.find(key);
  if (value != nullptr && value->is_array() && !value->empty()) value = &value->at(0);
  if (value == nullptr || !value->is_number_integer()) return std::nullopt;
  const auto id = value->get<int64_t>();
  return id >= 0 && id < vocabulary ? std::optional(id) : std::nullopt;
}

std::unique_ptr<Tokenizer> bare_ids(HfConfig& config, int64_t vocabulary) {
  const std::optional<int64_t> bos = special_id(config, "bos_token_id", vocabulary);
  const std::optional<int64_t> eos = special_id(config, "eos_token_id", vocabulary);
  const int64_t end = eos.value_or(bos.value_or(0));
  return std::make_unique<IdsTokenizer>(vocabulary, static_cast<int32_t>(bos.value_or(end)), static_cast<int32_t>(end));
}

std::unique_ptr<Tokenizer> choose_tokenizer(const ImportOptions& options, HfConfig& config, int64_t vocabulary,
                                            bool& found) {
  const TokenizerOptions any{.allow_lossy = true};
  const std::string folder = options.folder.string();
  found = true;
  if (options.tokenizer == "ids") return bare_ids(config, vocabulary);
  if (options.tokenizer) return parse_tokenizer_option(*options.tokenizer, any);
  if (const fs::path own = options.folder / "tokenizer.txt"; has_file(own)) {  // export writes it
    return make_tokenizer(read_text_file(own, {.kind = ErrorKind::data}), own.string(), ErrorKind::data);
  }
  if (has_file(options.folder / "tokenizer.json")) return parse_tokenizer_option("hf:" + folder, any);
  if (has_file(options.folder / "vocab.json") && has_file(options.folder / "merges.txt")) {
    return parse_tokenizer_option("bpe:" + folder, any);
  }
  if (has_file(options.folder / "tokenizer.model")) {
    return parse_tokenizer_option("spm:" + (options.folder / "tokenizer.model").string(), any);
  }
  found = false;
  return bare_ids(config, vocabulary);
}

// Returns the settings of the run, those of the model first.
std::vector<std::string> run_settings(const HfModel& model, const Tokenizer& tokenizer, const ImportOptions& options) {
  std::vector<std::string> settings = model.settings;
  settings.push_back(fmt::format("data.subsequence={}", std::min(model.positions, kUsualSubsequence)));
  if (tokenizer.vocabulary_size() != model.vocabulary) {
    settings.push_back(fmt::format("model.vocabulary={}", model.vocabulary));
  }
  settings.insert(settings.end(), options.overrides.begin(), options.overrides.end());
  return settings;
}

RunConfig run_config(const HfModel& model, const Tokenizer& tokenizer, const ImportOptions& options) {
  const std::string name = (options.folder / "config.json").string();
  return parse_config<RunConfig>("{}", name, run_settings(model, tokenizer, options));
}

// Imports what export wrote under quire's own names; configuration and tokenizer are there, too.
ImportReport import_own_folder(const ImportOptions& options) {
  if (options.tokenizer || options.length || !options.ignored.empty() || !options.overrides.empty()) {
    fail(ErrorKind::config, "{}: was exported by quire and comes back as it was; leave out every option but --output",
         options.folder.string());
  }
  const OwnImport imported = import_own(options.folder, options.output);
  return {.architecture = "quire", .tensors = imported.tensors, .bytes = imported.bytes};
}

}  // namespace

ImportReport import_model(const ImportOptions& options) {
  NewFolder::require_new(options.output);
  if (is_own_layout(options.folder)) return import_own_folder(options);
  HfConfig hf = HfConfig::read(options.folder / "config.json");
  const HfModel model = read_hf_model(hf, {.length = options.length, .ignored = options.ignored});
  const ModelFiles files = ModelFiles::open(options.folder);
  require_plausible(model, files);
  ImportReport report;
  const std::unique_ptr<Tokenizer> tokenizer =
      choose_tokenizer(options, hf, model.vocabulary, report.tokenizer_was_found);
  if (tokenizer->vocabulary_size() > model.vocabulary) {
    fail(ErrorKind::data,
         "{}: the tokenizer {} has {} ids and the model {} (vocab_size); give the one of the model with "
         "--tokenizer",
         options.folder.string(), tokenizer->kind(), tokenizer->vocabulary_size(), model.vocabulary);
  }
  const RunConfig config = run_config(model, *tokenizer, options);
  ParameterStore store;  // names and shapes only
  const Network network(store, config.model, tokenizer->vocabulary_size(), DType::f32);
  const WeightPlan plan = plan_weights(model, store, files);
  const DType dtype = config.run.precision == Precision::f64 ? DType::f64 : DType::f32;
  std::vector<StreamedTensor> tensors;
  for (const WeightSource& source : plan.sources) tensors.push_back(streamed(source, dtype));
  CheckpointMeta meta{.rows = config.data.rows};
  meta.backend = "import";
  meta.dtype = name_of(dtype);
  write_new_run(options.output, {0, meta.to_json(), dump_saved_config(config), tokenizer->serialise()},
                [&](CheckpointFolder& folder) { folder.write_streamed("model", tensors); });

  report.architecture = model.type;
  report.tokenizer = tokenizer->kind();
  report.vocabulary = model.vocabulary;
  report.tokenizer_ids = tokenizer->vocabulary_size();
  report.parameters = store.parameter_count();
  report.tensors = static_cast<int64_t>(plan.sources.size());
  report.left_out = plan.left_out;
  for (const auto& [name, placed] : files.tensors()) report.bytes += placed.tensor->bytes();
  report.positions = model.positions;
  report.subsequence = config.data.subsequence;
  return report;
}

}  // namespace quire
