#include "trainers/checkpoint/initial_weights.h"

#include <fnmatch.h>

#include <algorithm>

#include "core/check.h"
#include "kernels/elementwise.h"
#include "trainers/checkpoint/training_checkpoint.h"
#include "trainers/setup/model.h"

namespace quire {

namespace {

// Returns the names that no glob matches. Throws Error(config) for a glob that matches no name, which is a mistake.
std::vector<std::string> not_named(const std::vector<std::string>& names, const std::vector<std::string>& globs,
                                   const char* key, const char* what) {
  std::vector<bool> used(globs.size(), false);
  std::vector<std::string> left;
  for (const std::string& name : names) {
    bool covered = false;
    for (size_t i = 0; i < globs.size(); ++i) {
      if (fnmatch(globs[i].c_str(), name.c_str(), 0) != 0) continue;
      used[i] = true;
      covered = true;
    }
    if (!covered) left.push_back(name);
  }
  for (size_t i = 0; i < globs.size(); ++i) {
    if (!used[i]) fail(ErrorKind::config, "{}: '{}' names no parameter that {}", key, globs[i], what);
  }
  return left;
}

std::string some_of(const std::vector<std::string>& names) {
  constexpr size_t kMaxListed = 5;
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kMaxListed); ++i) text += (i == 0 ? "" : ", ") + names[i];
  return names.size() > kMaxListed ? fmt::format("{} and {} more", text, names.size() - kMaxListed) : text;
}

std::string first_line(const std::string& text) {
  return text.substr(0, text.find('\n'));
}

// Returns `rows` rows that all equal the mean row of the table. A bias is a table of width 1.
Tensor mean_rows(const Tensor& table, int64_t rows) {
  const int64_t width = table.rank() == 1 ? 1 : table.dim(1);
  const Tensor wide = Tensor::empty(table.shape(), DType::f64);
  ops::convert(wide, table);
  const std::vector<double> values = wide.to_vector<double>();
  std::vector<double> sums(static_cast<size_t>(width), 0.0);
  for (size_t i = 0; i < values.size(); ++i) sums[i % sums.size()] += values[i];
  std::vector<double> means;
  for (int64_t row = 0; row < rows; ++row) {
    for (const double sum : sums) means.push_back(sum / static_cast<double>(table.dim(0)));
  }
  const Shape shape = table.rank() == 1 ? Shape{rows} : Shape{rows, width};
  const Tensor mean = Tensor::empty(shape, table.dtype());
  ops::convert(mean, Tensor::from(means, shape));
  return mean;
}

}  // namespace

InitialWeights InitialWeights::open(const RunConfig& config, const Tokenizer& tokenizer, Ranks& ranks) {
  InitialWeights weights;
  use_checkpoint(*config.init.from, ranks, [&](const std::filesystem::path& checkpoint) {
    ranks.on_all([&] { weights = read(config, tokenizer, checkpoint, ranks.size() > 1); });
  });
  return weights;
}

InitialWeights InitialWeights::read(const RunConfig& config, const Tokenizer& tokenizer,
                                    const std::filesystem::path& checkpoint, bool verified) {
  InitialWeights weights;
  weights.checkpoint_ = checkpoint;
  const CheckpointReader reader = open_checkpoint(weights.checkpoint_, !verified);
  const std::string path = weights.checkpoint_.string();
  const std::string theirs = reader.read_text("tokenizer.txt");
  if (theirs != tokenizer.serialise()) {
    fail(ErrorKind::checkpoint,
         "init.from: {}: its tokenizer ({}) is not that of data.corpus ({}); prepare the corpus with the checkpoint's",
         path, first_line(theirs), first_line(tokenizer.serialise()));
  }

  // Only names and shapes are declared; nothing but buffers is allocated.
  ParameterStore model_store;
  const Network network(model_store, config.model, tokenizer.vocabulary_size(), DType::f32);
  std::map<std::string, Shape> shapes;
  for (const ParameterStore::Entry& entry : model_store.entries()) shapes[entry.name] = entry.shape;
  for (const ParameterStore::Buffer& buffer : model_store.buffers())
    shapes["buffer." + buffer.name] = buffer.value.shape();

  std::vector<std::string> unused;
  std::string misfit;
  for (NamedTensor& tensor : reader.read_part("model").tensors) {
    const auto found = shapes.find(tensor.name);
    if (found != shapes.end() && found->second == tensor.tensor.shape()) {
      weights.tensors_[tensor.name] = std::move(tensor.tensor);
      continue;
    }
    unused.push_back(tensor.name);
    if (found != shapes.end() && misfit.empty()) {
      misfit = fmt::format("; {} is {} there and {} here", tensor.name, tensor.tensor.shape().to_string(),
                           found->second.to_string());
    }
  }
  for (const auto& [name, shape] : shapes) {
    if (!weights.tensors_.contains(name)) weights.missing_.push_back(name);
  }
  std::vector<std::string> missing =
      not_named(weights.missing_, config.init.missing, "init.missing", "the checkpoint does not have");
  // When the checkpoint has them in another shape, the usual error follows.
  for (const auto& [inserted, of_text] : {std::pair<std::string, std::string>{"embedding.inserted", "embedding.weight"},
                                          {"head.inserted", "head.weight"},
                                          {"head.inserted_bias", "head.bias"}}) {
    const auto table = weights.tensors_.find(of_text);
    if (table != weights.tensors_.end() && std::find(unused.begin(), unused.end(), inserted) == unused.end() &&
        std::erase(missing, inserted) > 0) {
      weights.tensors_[inserted] = mean_rows(table->second, network.model.insertion().ids);
      std::erase(weights.missing_, inserted);
    }
  }
  const std::vector<std::string> left = not_named(unused, config.init.unused, "init.unused", "only the checkpoint has");
  if (!missing.empty()) {
    fail(ErrorKind::checkpoint,
         "init.from: {} has no {}{}{}; name what is to be drawn anew in init.missing, for example [\"{}\"]", path,
         some_of(missing), misfit.empty() ? "" : " in the shape of this model", misfit, missing.front());
  }
  if (!left.empty()) {
    fail(ErrorKind::checkpoint,
         "init.from: {} has {}, which this model has not{}; name what is to be left out in init.unused, for example "
         "[\"{}\"]",
         path, some_of(left), misfit, left.front());
  }
  return weights;
}

void InitialWeights::load(const ParameterStore& store) const {
  const auto take = [&](const std::string& name, const Tensor& to) {
    const auto found = tensors_.find(name);
    if (found == tensors_.end()) return;
    if (found->second.dtype() == to.dtype()) {
      to.copy_from(found->second);
    } else {
      const Tensor converted = Tensor::empty(to.shape(), to.dtype());
      ops::convert(converted, found->second);
      to.copy_from(converted);
    }
  };
  for (const ParameterStore::Entry& entry : store.entries()) take(entry.name, store.value(entry));
  for (const ParameterStore::Buffer& buffer : store.buffers()) take("buffer." + buffer.name, buffer.value);
  store.publish();
}

}  // namespace quire
