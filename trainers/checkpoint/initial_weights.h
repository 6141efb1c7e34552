// init.from: a run begins with the weights of another run's checkpoint. Only weights are taken: moments, carried state
// and the position in the data begin anew, and everything without weights, such as cache and window, may differ.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "core/ranks/ranks.h"
#include "core/tensor.h"
#include "data/tokenizers/tokenizer.h"
#include "layers/parameters/parameter_store.h"
#include "trainers/setup/config.h"

namespace quire {

class InitialWeights {
 public:
  // Reads the checkpoint and compares it with the model of the configuration, before anything is made for the run.
  // Parameters are matched by name and shape. Throws Error(checkpoint) for another tokenizer, and for parameters that
  // are missing or left over without being named by init.missing or init.unused; throws Error(config) for a glob that
  // names none. Embeddings of inserted tokens may be missing: each begins as the mean embedding of the vocabulary,
  // unless init.missing names them. All ranks read the checkpoint that rank 0 chooses.
  static InitialWeights open(const RunConfig& config, const Tokenizer& tokenizer, Ranks& ranks = Ranks::current());

  // Overwrites the parameters that the checkpoint has; the others keep their initial values.
  void load(const ParameterStore& store) const;

  const std::filesystem::path& checkpoint() const { return checkpoint_; }
  size_t size() const { return tensors_.size(); }
  // the parameters that keep their random initial values
  const std::vector<std::string>& missing() const { return missing_; }

 private:
  static InitialWeights read(const RunConfig& config, const Tokenizer& tokenizer,
                             const std::filesystem::path& checkpoint, bool verified);

  std::filesystem::path checkpoint_;
  std::map<std::string, Tensor> tensors_;  // those the model takes, buffers with the prefix "buffer."
  std::vector<std::string> missing_;
};

}  // namespace quire
