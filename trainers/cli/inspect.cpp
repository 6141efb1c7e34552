#include <memory>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/config/config_node.h"
#include "trainers/cli/program.h"
#include "trainers/cli/verbs.h"
#include "trainers/look/inspection.h"

namespace quire {

namespace {

using Json = nlohmann::ordered_json;

struct Arguments {
  std::string path;
  bool parameters = false;
  bool json = false;
};

std::string text(const Json& value) {
  return value.is_string() ? value.get<std::string>() : value.is_null() ? "-" : value.dump();
}

std::string text(const Json& json, const char* key) {
  return text(json.at(key));
}

std::string size_text(const Json& json, const char* key) {
  const auto bytes = static_cast<double>(json.at(key).get<int64_t>());
  return bytes < (1 << 20) ? fmt::format("{:.1f} KiB", bytes / (1 << 10))
                           : fmt::format("{:.1f} MiB", bytes / (1 << 20));
}

void print_indented(const std::string& block) {
  for (size_t begin = 0; begin < block.size();) {
    const size_t end = std::min(block.find('\n', begin), block.size());
    print("    " + block.substr(begin, end - begin) + "\n");
    begin = end + 1;
  }
}

void print_corpus(const Json& json) {
  print(fmt::format("{}: corpus, {}, checksum {} verified\n", text(json, "path"), size_text(json, "file_bytes"),
                    text(json, "checksum")));
  print(fmt::format("  tokenizer {}, {} ids\n", text(json, "tokenizer"), text(json, "vocabulary")));
  for (const Json& split : json.at("splits")) {
    print(fmt::format("  split {}: {} documents, {} tokens, {} bytes, {} words{}\n", text(split, "name"),
                      text(split, "documents"), text(split, "tokens"), text(split, "bytes"), text(split, "words"),
                      split.at("marked").get<bool>() ? "; recalled tokens are marked" : ""));
    for (const char* which : {"longest", "shortest"}) {
      if (!split.contains(which)) continue;
      print(fmt::format("    {:<9} {}: {} tokens, {} bytes\n", which, text(split.at(which), "name"),
                        text(split.at(which), "tokens"), text(split.at(which), "bytes")));
    }
  }
}

void print_checkpoint(const Json& json) {
  print(fmt::format("{}: checkpoint, {}, all checksums verified\n", text(json, "path"), size_text(json, "file_bytes")));
  print(fmt::format("  step {} of {}, {} targets seen, {} steps skipped; {} with {} kernels\n", text(json, "step"),
                    text(json, "steps"), text(json, "tokens"), text(json, "skipped"), text(json, "dtype"),
                    text(json, "backend")));
  const Json& parameters = json.at("parameters");
  print(fmt::format("  parameters {}, {}; buffers {}\n", text(parameters, "count"), size_text(parameters, "bytes"),
                    size_text(parameters, "buffer_bytes")));
  for (const Json& part : parameters.at("parts")) {
    print(
        fmt::format("    {:<32} {:>12}  {:>12}\n", text(part, "name"), text(part, "count"), size_text(part, "bytes")));
  }
  if (parameters.contains("list")) {
    print("  every parameter\n");
    for (const Json& entry : parameters.at("list")) {
      print(fmt::format("    {:<40} {:>16} {:>4} {:>12}\n", text(entry, "name"), text(entry, "shape"),
                        text(entry, "dtype"), size_text(entry, "bytes")));
    }
  }
  const Json& optimizer = json.at("optimizer");
  print(fmt::format("  optimizer {}, {} tensors, {}\n", text(optimizer, "kind"), text(optimizer, "tensors"),
                    size_text(optimizer, "bytes")));
  for (const Json& line : optimizer.at("groups")) print("    " + line.get<std::string>() + "\n");
  if (!json.at("average").is_null()) {
    print(fmt::format("  average of the weights, decay {}, {}\n", text(json.at("average"), "decay"),
                      size_text(json.at("average"), "bytes")));
  }
  print(fmt::format("  carried state {}; trained on corpus {}, tokenizer {}\n", size_text(json.at("state"), "bytes"),
                    text(json, "corpus"), text(json, "tokenizer")));
  for (const Json& row : json.at("state").at("rows")) {
    int64_t min_tokens = -1;
    int64_t max_tokens = -1;
    for (const auto& [name, length] : row.at("lengths").items()) {
      const auto value = length.get<int64_t>();
      min_tokens = min_tokens < 0 ? value : std::min(min_tokens, value);
      max_tokens = std::max(max_tokens, value);
    }
    const std::string carried = max_tokens < 0 ? "carries nothing"
                                : min_tokens == max_tokens
                                    ? fmt::format("carries {} tokens", max_tokens)
                                    : fmt::format("carries {} to {} tokens", min_tokens, max_tokens);
    const std::string reads = row.at("place").is_null() ? "between documents"
                                                        : fmt::format("in document {} of the order, position {}",
                                                                      text(row, "place"), text(row, "offset"));
    print(fmt::format("    row {}: {}, {}\n", text(row, "row"), reads, carried));
  }
  print("  configuration\n");
  print_indented(text(json, "config"));
}

// Prints a line for each number and word, with the keys that lead to it.
void print_table(const std::string& prefix, const Json& json) {
  for (const auto& [key, value] : json.items()) {
    const std::string name = join_key(prefix, key);
    if (value.is_structured() && !value.empty()) {
      print_table(name, value);
    } else if (!value.is_structured()) {
      print(fmt::format("    {:<32} {}\n", name,
                        value.is_number_float() ? fmt::format("{:.6g}", value.get<double>()) : text(value)));
    }
  }
}

void print_run(const Json& json) {
  print(fmt::format("{}: run {}, {}\n", text(json, "path"), text(json, "name"), text(json, "state")));
  print(json.at("latest").is_null()
            ? fmt::format("  no whole checkpoint, of {} steps\n", text(json, "steps"))
            : fmt::format("  newest whole checkpoint: step {} of {}\n", text(json, "latest"), text(json, "steps")));
  if (!json.at("best").is_null()) {
    print(fmt::format("  best checkpoint: step {}, with the lowest loss of an evaluation\n", text(json, "best")));
  }
  for (const Json& checkpoint : json.at("checkpoints")) {
    print(fmt::format("    step {}: {}\n", text(checkpoint, "step"),
                      checkpoint.at("damage").is_null() ? "whole" : "damaged: " + text(checkpoint, "damage")));
  }
  if (!json.at("last_metrics").is_null()) {
    print("  last logged step\n");
    print_table("", json.at("last_metrics"));
  }
  if (!json.at("last_evaluation").is_null()) {
    print(fmt::format("  last evaluation, after step {}\n", text(json.at("last_evaluation"), "step")));
    print_table("", json.at("last_evaluation").at("evaluation"));
  }
  print("  configuration\n");
  print_indented(text(json, "config"));
}

// Throws for damaged checkpoints. Everything was printed first, because the rest of the run may be usable.
void fail_for_damage(const Json& run) {
  for (const Json& checkpoint : run.at("checkpoints")) {
    if (checkpoint.at("damage").is_null()) continue;
    fail(ErrorKind::checkpoint, "{}: step {} is damaged: {}", text(run, "path"), text(checkpoint, "step"),
         text(checkpoint, "damage"));
  }
}

void run(const Arguments& arguments) {
  const Inspected kind = what_is(arguments.path);
  if (arguments.parameters && kind != Inspected::checkpoint) {
    fail(ErrorKind::config, "{}: is no checkpoint; only a checkpoint has --parameters", arguments.path);
  }
  Json json;
  switch (kind) {
    case Inspected::corpus:
      json = inspect_corpus(arguments.path);
      break;
    case Inspected::checkpoint:
      json = inspect_checkpoint(arguments.path, arguments.parameters);
      break;
    case Inspected::run:
      json = inspect_run(arguments.path);
      break;
  }
  if (arguments.json) {
    print_json(json);
  } else if (kind == Inspected::corpus) {
    print_corpus(json);
  } else if (kind == Inspected::checkpoint) {
    print_checkpoint(json);
  } else {
    print_run(json);
  }
  if (kind == Inspected::run) fail_for_damage(json);
}

}  // namespace

void add_inspect(Verb& program) {
  Verb& app = add_verb(program, "inspect", "What a corpus, a checkpoint or a run directory holds",
                       "quire inspect runs/first\n  quire inspect runs/first/checkpoints/step-00000500 --parameters");
  const auto arguments = std::make_shared<Arguments>();
  app.add_option("PATH", arguments->path, "A corpus file, a checkpoint or a run directory")->required();
  app.add_flag("--parameters", arguments->parameters, "Every parameter of a checkpoint by name");
  app.add_flag("--json", arguments->json, "Print one JSON object instead of text");
  app.callback([arguments] { on_root_alone([&] { run(*arguments); }); });
}

}  // namespace quire
