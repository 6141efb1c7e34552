#include <chrono>
#include <memory>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "trainers/cli/numbers.h"
#include "trainers/cli/program.h"
#include "trainers/cli/trained_model.h"
#include "trainers/cli/verbs.h"
#include "trainers/exchange/export.h"
#include "trainers/setup/evaluation_config.h"

namespace quire {

namespace {

struct Arguments {
  std::string checkpoint;
  std::vector<std::string> overrides;
  std::string output;
  std::optional<std::string> type;
  std::optional<int64_t> positions;
  std::optional<bool> ema;
  bool own_names = false;
  bool json = false;
};

StoredType type_of(const std::string& name) {
  if (name == "f64") return StoredType::f64;
  if (name == "f16") return StoredType::f16;
  return name == "bf16" ? StoredType::bf16 : StoredType::f32;
}

void run(const Arguments& arguments) {
  const auto started = std::chrono::steady_clock::now();
  ExportReport report;
  use_checkpoint(arguments.checkpoint, [&](const std::filesystem::path& path) {
    const CheckpointReader reader = open_checkpoint(path);
    const RunConfig config = evaluation_config(checkpoint_config(reader), arguments.overrides);
    ExportOptions options{.output = arguments.output,
                          .config = config,
                          .weights = chosen_weights(arguments.ema, config),
                          .type = std::nullopt,
                          .positions = arguments.positions,
                          .own_names = arguments.own_names};
    if (arguments.type) options.type = type_of(*arguments.type);
    report = export_checkpoint(reader, options);
  });
  const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
  const std::string layout = report.architecture.empty() ? "quire" : report.architecture;
  if (arguments.json) {
    return print_json(nlohmann::ordered_json{{"output", arguments.output},
                                             {"architecture", layout},
                                             {"tensors", report.tensors},
                                             {"bytes", report.bytes},
                                             {"files", report.files},
                                             {"seconds", seconds}});
  }
  print(fmt::format("{}: {}, {} tensors, {} bytes, {} safetensors files, {:.1f} s\n", arguments.output, layout,
                    report.tensors, report.bytes, report.files, seconds));
  if (report.architecture.empty() && !arguments.own_names) {
    print("  no architecture of transformers is this model, so the tensors have quire's own names\n");
  }
}

}  // namespace

void add_export(Verb& program) {
  Verb& app = add_verb(program, "export", "Write a checkpoint as safetensors, for transformers where it has the model",
                       "quire export runs/first --output first-hf\n"
                       "  quire export runs/first --own-names --output first-safetensors");
  const auto arguments = std::make_shared<Arguments>();
  app.add_option("CHECKPOINT", arguments->checkpoint, "A checkpoint, or a run directory (its newest checkpoint)")
      ->required();
  app.add_option("OVERRIDES", arguments->overrides,
                 "key.path=value that may differ at evaluation: without a cache a model may have an architecture");
  app.add_option("--output", arguments->output, "The folder to write, which must not exist")
      ->type_name("DIR")
      ->required();
  app.add_option("--dtype", arguments->type, "Type of the weights: f32, bf16, f16 or f64 (default: the checkpoint's)")
      ->type_name("TYPE")
      ->one_of({"f32", "bf16", "f16", "f64"});
  app.add_option("--positions", arguments->positions,
                 "The longest text that the model is meant for (default: data.subsequence)")
      ->type_name("TOKENS")
      ->check(whole_number(1, 1 << 30));
  app.add_flag("--own-names", arguments->own_names, "Keep quire's own names where transformers has the model, too");
  add_ema_flag(app, arguments->ema);
  app.add_flag("--json", arguments->json, "Print one JSON object instead of text");
  app.callback([arguments] { on_root_alone([&] { run(*arguments); }); });
}

}  // namespace quire
