#include "trainers/evaluation/target_losses.h"

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/files/hdf5_file.h"
#include "core/files/output_file.h"

namespace quire {

namespace {

namespace fs = std::filesystem;

template <typename T, typename Of>
void put_values(Hdf5Writer& file, const std::string& path, const std::vector<TargetLoss>& targets, const Of& of) {
  std::vector<T> values;
  values.reserve(targets.size());
  for (const TargetLoss& target : targets) values.push_back(static_cast<T>(of(target)));
  file.put(path, Tensor::from(values, {static_cast<int64_t>(values.size())}));
}

}  // namespace

void require_new_losses_file(const fs::path& path) {
  std::error_code ignored;
  if (fs::symlink_status(path, ignored).type() != fs::file_type::not_found) {
    fail(ErrorKind::config, "--losses {}: exists already; remove it or give another name", path.string());
  }
  require_output_folder(path, "--losses");
}

void write_target_losses(const fs::path& path, const EvaluationResult& result, const Tokenizer& tokenizer,
                         const std::string& checkpoint) {
  std::vector<std::string> names;
  std::vector<int64_t> offsets(result.documents.size() + 1);
  for (const DocumentResult& document : result.documents) names.push_back(document.name);
  for (const TargetLoss& target : result.targets) ++offsets[static_cast<size_t>(target.document) + 1];
  for (size_t i = 1; i < offsets.size(); ++i) offsets[i] += offsets[i - 1];

  Hdf5Writer file;
  file.put_texts("/names", names);
  file.put("/offsets", Tensor::from(offsets, {static_cast<int64_t>(offsets.size())}));
  put_values<int64_t>(file, "/position", result.targets, [](const TargetLoss& t) { return t.position; });
  put_values<int32_t>(file, "/target", result.targets, [](const TargetLoss& t) { return t.target; });
  put_values<int32_t>(file, "/best", result.targets, [](const TargetLoss& t) { return t.best; });
  put_values<double>(file, "/nll", result.targets, [](const TargetLoss& t) { return t.nll; });
  put_values<uint8_t>(file, "/recalled", result.targets, [](const TargetLoss& t) { return t.recalled ? 1 : 0; });
  std::vector<uint8_t> text;
  std::vector<int64_t> text_end;
  for (const TargetLoss& target : result.targets) {
    const std::string piece = target.target == tokenizer.eos_id() ? "" : tokenizer.decode({&target.target, 1});
    text.insert(text.end(), piece.begin(), piece.end());
    text_end.push_back(static_cast<int64_t>(text.size()));
  }
  file.put("/text", Tensor::from(text, {static_cast<int64_t>(text.size())}));
  file.put("/text_end", Tensor::from(text_end, {static_cast<int64_t>(text_end.size())}));
  file.set_attribute("/", "split", result.split);
  file.set_attribute("/", "checkpoint", checkpoint);
  replace_file_atomically(path, file.finish());
}

}  // namespace quire
