// Finds the weights of a model in the tensors of a folder.
#pragma once

#include <string>
#include <vector>

#include "layers/parameters/parameter_store.h"
#include "trainers/checkpoint/checkpoint_folder.h"
#include "trainers/exchange/hf_model.h"
#include "trainers/exchange/model_files.h"

namespace quire {

// Names the tensor that has the values of a parameter, and how they lie in it.
struct WeightSource {
  std::string parameter;
  Shape shape;
  PlacedTensor tensor;
  TensorCut cut;
};

struct WeightPlan {
  std::vector<WeightSource> sources;  // one for every parameter, in the order of the store
  int64_t left_out = 0;               // number of buffers that are no weights
};

// Checks the vocabulary and the number of layers, which decide how much memory the description of the model takes.
void require_plausible(const HfModel& model, const ModelFiles& files);

// Throws Error(data) that names the first tensor that is missing, left over, misshapen or of a type without weights, or
// a head that contradicts tied embeddings.
WeightPlan plan_weights(const HfModel& model, const ParameterStore& store, const ModelFiles& files);

// Returns the parameter as a tensor of a checkpoint: bf16 where it is stored so, else f32 or f64. `plan` and the files
// must outlive it.
StreamedTensor streamed(const WeightSource& source, DType dtype);

}  // namespace quire
