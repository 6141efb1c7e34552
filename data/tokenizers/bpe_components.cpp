#include "data/tokenizers/bpe_components.h"

#include <functional>

#include "core/check.h"
#include "core/json.h"
#include "data/tokenizers/split_pattern.h"

namespace quire {

using nlohmann::json;

JsonFields::JsonFields(const json& object, std::string where) : object_(object), where_(std::move(where)) {
  if (!object.is_object()) fail(ErrorKind::data, "{} is not an object", where_);
}

bool JsonFields::has(const char* key) const {
  const auto found = object_.find(key);
  return found != object_.end() && !found->is_null();
}

const json& JsonFields::at(const char* key) const {
  if (!has(key)) fail(ErrorKind::data, "{} has no {}", where_, key);
  return *object_.find(key);
}

const json& JsonFields::list(const char* key) const {
  const json& value = at(key);
  if (!value.is_array()) fail(ErrorKind::data, "{}: {} is not a list", where_, key);
  return value;
}

std::string JsonFields::text(const char* key) const {
  const json& value = at(key);
  if (!value.is_string()) fail(ErrorKind::data, "{}: {} is not a text", where_, key);
  return value.get<std::string>();
}

std::string JsonFields::text(const char* key, const std::string& otherwise) const {
  return has(key) ? text(key) : otherwise;
}

bool JsonFields::flag(const char* key, bool otherwise) const {
  if (!has(key)) return otherwise;
  const json& value = at(key);
  if (!value.is_boolean()) fail(ErrorKind::data, "{}: {} is neither true nor false", where_, key);
  return value.get<bool>();
}

int64_t JsonFields::integer(const char* key) const {
  try {
    return json_integer(at(key));
  } catch (const json::exception&) {
    fail(ErrorKind::data, "{}: {} is not a whole number", where_, key);
  }
}

namespace {

constexpr size_t kComponents = 32;

// Calls `read` for a component or for each of those of a Sequence, whose list has the name `parts`.
void each_component(const json& file, const char* key, const char* parts,
                    const std::function<void(const std::string& type, const JsonFields& fields)>& read) {
  const auto found = file.find(key);
  if (found == file.end() || found->is_null()) return;
  size_t count = 0;
  const std::function<void(const json&)> visit = [&](const json& component) {
    const JsonFields fields(component, key);
    const std::string type = fields.text("type");
    if (++count > kComponents) fail(ErrorKind::data, "{} has more than {} parts", key, kComponents);
    if (type != "Sequence") return read(type, JsonFields(component, fmt::format("{} {}", key, shortened(type))));
    for (const json& part : fields.list(parts)) visit(part);
  };
  visit(*found);
}

[[noreturn]] void fail_unknown(const char* key, const std::string& type, const char* known) {
  fail(ErrorKind::data, "{} \"{}\" is unknown to quire, which knows {}", key, type, known);
}

// Reads {"String": "..."}.
std::string literal_pattern(const JsonFields& fields) {
  const JsonFields pattern(fields.at("pattern"), fields.where() + ": pattern");
  if (!pattern.has("String"))
    fail(ErrorKind::data, "{}: its pattern is not a String; quire replaces texts only", fields.where());
  const std::string text = pattern.text("String");
  if (text.empty()) fail(ErrorKind::data, "{}: its pattern is empty", fields.where());
  return text;
}

// Reads {"Regex": "..."}.
std::string regular_expression(const JsonFields& fields) {
  const JsonFields pattern(fields.at("pattern"), fields.where() + ": pattern");
  if (!pattern.has("Regex")) {
    fail(ErrorKind::data, "{}: its pattern is a String; quire takes patterns that are a Regex", fields.where());
  }
  return pattern.text("Regex");
}

SplitBehavior behavior_of(const JsonFields& fields) {
  const std::string name = fields.text("behavior");
  if (name == "Isolated") return SplitBehavior::isolated;
  if (name == "Removed") return SplitBehavior::removed;
  if (name == "MergedWithPrevious") return SplitBehavior::merged_with_previous;
  if (name == "MergedWithNext") return SplitBehavior::merged_with_next;
  if (name == "Contiguous") return SplitBehavior::contiguous;
  fail(ErrorKind::data, "{}: behavior \"{}\" is unknown to quire", fields.where(), name);
}

using Prepend = PreTokenizerStep::Prepend;

Prepend metaspace_prepend(const JsonFields& fields) {
  // Older files say add_prefix_space instead.
  if (!fields.has("prepend_scheme")) return fields.flag("add_prefix_space", true) ? Prepend::always : Prepend::never;
  const std::string name = fields.text("prepend_scheme");
  if (name == "always") return Prepend::always;
  if (name == "first") return Prepend::first;
  if (name == "never") return Prepend::never;
  fail(ErrorKind::data, "{}: prepend_scheme \"{}\" is unknown to quire", fields.where(), name);
}

PreTokenizerStep read_pre_tokenizer_step(const std::string& type, const JsonFields& fields) {
  PreTokenizerStep step;
  if (type == "Split") {
    step.pattern = regular_expression(fields);
    step.behavior = behavior_of(fields);
    step.invert = fields.flag("invert", false);
  } else if (type == "Digits") {
    step.kind = PreTokenizerStep::Kind::digits;
    step.individual = fields.flag("individual_digits", false);
  } else if (type == "ByteLevel") {
    step.kind = PreTokenizerStep::Kind::byte_level;
    step.prepend = fields.flag("add_prefix_space", true) ? Prepend::always : Prepend::never;
    if (fields.flag("use_regex", true)) step.pattern = kGpt2Pattern;
  } else if (type == "Metaspace") {
    step.kind = PreTokenizerStep::Kind::metaspace;
    step.mark = fields.text("replacement");
    if (step.mark.empty()) fail(ErrorKind::data, "{}: replacement is empty", fields.where());
    step.prepend = metaspace_prepend(fields);
    step.splits = fields.flag("split", true);
  } else {
    fail_unknown("pre_tokenizer", type, "Sequence, Split, Digits, ByteLevel, Metaspace");
  }
  return step;
}

}  // namespace

void read_normalizer(const json& file, BpeSpec& spec) {
  using Kind = NormalizerStep::Kind;
  each_component(file, "normalizer", "normalizers", [&](const std::string& type, const JsonFields& fields) {
    NormalizerStep step;
    if (type == "NFC") {
      step.kind = Kind::nfc;
    } else if (type == "NFD") {
      step.kind = Kind::nfd;
    } else if (type == "Prepend") {
      step.kind = Kind::prepend;
      step.to = fields.text("prepend");
    } else if (type == "Replace") {
      step.kind = Kind::replace;
      step.from = literal_pattern(fields);
      step.to = fields.text("content");
    } else {
      fail_unknown("normalizer", type, "Sequence, NFC, NFD, Prepend, Replace");
    }
    if (step.to.size() > kLongestToken) fail(ErrorKind::data, "{}: its text is too long", fields.where());
    spec.normalizer.push_back(std::move(step));
  });
}

void read_pre_tokenizer(const json& file, BpeSpec& spec) {
  each_component(file, "pre_tokenizer", "pretokenizers", [&](const std::string& type, const JsonFields& fields) {
    if (spec.byte_level) fail(ErrorKind::data, "pre_tokenizer {} follows ByteLevel, which must be the last", type);
    spec.pre_tokenizer.push_back(read_pre_tokenizer_step(type, fields));
    spec.byte_level = type == "ByteLevel";
  });
}

void read_post_processor(const json& file) {
  each_component(file, "post_processor", "processors", [](const std::string& type, const JsonFields& /*fields*/) {
    if (type == "ByteLevel" || type == "TemplateProcessing") return;
    fail_unknown("post_processor", type, "Sequence, ByteLevel, TemplateProcessing");
  });
}

void read_decoder(const json& file, BpeSpec& spec) {
  each_component(file, "decoder", "decoders", [&](const std::string& type, const JsonFields& fields) {
    if (type == "ByteLevel" || type == "Fuse" || type == "ByteFallback") return;
    if (type == "Replace") {
      if (fields.text("content") != " ") fail(ErrorKind::data, "{}: its content is not a space", fields.where());
      spec.mark = literal_pattern(fields);
    } else if (type == "Metaspace") {
      spec.mark = fields.text("replacement");
      if (metaspace_prepend(fields) != Prepend::never) spec.drops_first_marks = true;
    } else if (type == "Strip") {
      if (fields.text("content") != " ") fail(ErrorKind::data, "{}: its content is not a space", fields.where());
      if (fields.has("stop") && fields.integer("stop") != 0) fail(ErrorKind::data, "{}: stop is not 0", fields.where());
      spec.stripped_spaces = fields.integer("start");
    } else {
      fail_unknown("decoder", type, "Sequence, ByteLevel, Replace, ByteFallback, Fuse, Metaspace, Strip");
    }
  });
}

}  // namespace quire
