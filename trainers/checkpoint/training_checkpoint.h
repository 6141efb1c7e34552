// What a checkpoint of a run holds, and how a run goes on from it.
#pragma once

#include <filesystem>

#include "data/batches/cursor.h"
#include "data/corpus/corpus.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/run/step.h"
#include "trainers/run/training_mixture.h"

namespace quire {

// mixture: nullptr without data.mix. Parameters, buffers, moments, the state of every row, cursor, configuration,
// tokenizer, corpus hash, kernel variant.
std::filesystem::path save_training(const std::filesystem::path& checkpoints_dir, const TrainingState& training,
                                    const RunConfig& config, const Corpus& corpus, const TrainingMixture* mixture,
                                    const Cursor& cursor, const Machine& machine);

// What every use of a checkpoint begins with. Error(checkpoint) when another version of the format wrote it.
CheckpointReader open_checkpoint(const std::filesystem::path& checkpoint);

// The configuration and tokenizer a checkpoint was made with.
RunConfig checkpoint_config(const CheckpointReader& reader);
std::unique_ptr<Tokenizer> checkpoint_tokenizer(const CheckpointReader& reader);

enum class Weights { trained, average };

// Weights only. Error(checkpoint) names the first parameter that is missing, left over or of another shape. The average
// has a part of its own; Error(config) when the run kept none.
void load_weights(const CheckpointReader& reader, ParameterStore& store, Weights which = Weights::trained);

// Everything a run needs to go on bit for bit; returns the cursor. Without state when drop_state is set.
Cursor load_training(const CheckpointReader& reader, TrainingState& training, bool drop_state);

}  // namespace quire
