#include "trainers/exchange/weight_plan.h"

#include <algorithm>
#include <set>

#include "core/bfloat16.h"
#include "core/check.h"

namespace quire {

namespace {

std::string folder_of(const ModelFiles& files) {
  return files.folder().string();
}

// Some checkpoints have the names of the body without its prefix, as the published GPT-2.
std::string prefix_of(const NameTable& table, const ModelFiles& files) {
  const bool has_prefixed = files.find(std::string(table.prefix) + table.embedding) != nullptr;
  return has_prefixed || files.find(table.embedding) == nullptr ? table.prefix : "";
}

std::string full_name(const ForeignName& name, const std::string& prefix) {
  return name.prefixed ? prefix + name.name : name.name;
}

[[noreturn]] void fail_for_missing(const ModelFiles& files, const std::string& name) {
  fail(ErrorKind::data, "{}: tensor {} is missing", folder_of(files), name);
}

void require_shape(const ModelFiles& files, const StoredTensor& tensor, const std::vector<int64_t>& expected) {
  if (tensor.shape != expected) {
    fail(ErrorKind::data, "{}: tensor {} is [{}], and config.json makes it [{}]", folder_of(files), tensor.name,
         fmt::join(tensor.shape, ", "), fmt::join(expected, ", "));
  }
  if (!holds_weights(tensor.type)) {
    fail(ErrorKind::data, "{}: tensor {} is {}; weights are F64, F32, F16 or BF16", folder_of(files), tensor.name,
         name_of(tensor.type));
  }
}

// A head beside tied embeddings must equal them: versions of transformers differ in which of the two they take.
bool is_equal_head(const ModelFiles& files, const NameTable& table, const std::string& prefix, const HfModel& model) {
  const PlacedTensor* head = files.find(table.head);
  const PlacedTensor* embedding = files.find(prefix + table.embedding);
  if (!model.tied || head == nullptr || embedding == nullptr) return false;
  const auto a = head->bytes(), b = embedding->bytes();
  const bool same = head->tensor->type == embedding->tensor->type && head->tensor->shape == embedding->tensor->shape &&
                    std::equal(a.begin(), a.end(), b.begin(), b.end());
  if (!same) {
    fail(ErrorKind::data,
         "{}: tensor {} differs from {}, and config.json ties them (tie_word_embeddings); correct one of the two",
         folder_of(files), table.head, embedding->tensor->name);
  }
  head->file->forget(*head->tensor);
  return true;
}

}  // namespace

void require_plausible(const HfModel& model, const ModelFiles& files) {
  const NameTable& table = name_table(model.layout);
  const std::string prefix = prefix_of(table, files);
  const std::string name = prefix + table.embedding;
  const PlacedTensor* embedding = files.find(name);
  if (embedding == nullptr) fail_for_missing(files, name);
  require_shape(files, *embedding->tensor, {model.vocabulary, model.width});
  // A layer has at least a matrix for queries.
  const std::string queries = fmt::format("blocks.{}.attention.query.weight", model.layers - 1);
  const std::string last = full_name(*foreign_name(table, queries, model.head_size), prefix);
  if (files.find(last) == nullptr) fail_for_missing(files, last);
}

WeightPlan plan_weights(const HfModel& model, const ParameterStore& store, const ModelFiles& files) {
  const NameTable& table = name_table(model.layout);
  const std::string prefix = prefix_of(table, files);
  WeightPlan plan;
  std::set<std::string> used;
  for (const ParameterStore::Entry& entry : store.entries()) {
    const std::optional<ForeignName> name = foreign_name(table, entry.name, model.head_size);
    QUIRE_CHECK(name.has_value(), "import: {} has no name in this layout", entry.name);
    const std::string full = full_name(*name, prefix);
    const PlacedTensor* found = files.find(full);
    if (found == nullptr) fail_for_missing(files, full);
    require_shape(files, *found->tensor, name->cut.shape_of(entry.shape));
    used.insert(full);
    plan.sources.push_back({entry.name, entry.shape, *found, name->cut});
  }
  if (is_equal_head(files, table, prefix, model)) used.insert(table.head);
  for (const auto& [name, placed] : files.tensors()) {
    if (used.contains(name)) continue;
    const bool prefixed = name.starts_with(prefix);
    if (prefixed && is_ignored(table, std::string_view(name).substr(prefix.size()), model.layers)) {
      ++plan.left_out;
      continue;
    }
    fail(ErrorKind::data, "{}: tensor {} is left over: nothing in config.json says what it is for", folder_of(files),
         name);
  }
  return plan;
}

StreamedTensor streamed(const WeightSource& source, DType dtype) {
  const auto fill = [&source](int64_t begin, auto values) {
    const PlacedTensor& tensor = source.tensor;
    if (!read_cut(source.cut, source.shape, tensor.tensor->type, tensor.bytes(), begin, values)) {
      fail(ErrorKind::data, "{}: tensor {} has a value that f32 cannot hold; import it with run.precision=f64",
           tensor.file->path().string(), tensor.tensor->name);
    }
    const int64_t end = begin + static_cast<int64_t>(values.size());
    if (end == source.shape.numel()) tensor.file->forget(*tensor.tensor);
  };
  // bf16 stays as it is stored, which halves what is written.
  if (source.tensor.tensor->type == StoredType::bf16 && source.cut.added == 0) {
    return {source.parameter, DType::bf16, source.shape, [fill](int64_t begin, std::span<std::byte> piece) {
              fill(begin, std::span(reinterpret_cast<bfloat16*>(piece.data()), piece.size() / sizeof(bfloat16)));
            }};
  }
  const auto fill_bytes = [fill, dtype](int64_t begin, std::span<std::byte> piece) {
    if (dtype == DType::f64) {
      fill(begin, std::span(reinterpret_cast<double*>(piece.data()), piece.size() / sizeof(double)));
    } else {
      fill(begin, std::span(reinterpret_cast<float*>(piece.data()), piece.size() / sizeof(float)));
    }
  };
  return {source.parameter, dtype, source.shape, fill_bytes};
}

}  // namespace quire
