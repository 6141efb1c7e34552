// Saves a run as a checkpoint, and loads it again.
#pragma once

#include <filesystem>

#include "data/batches/cursor.h"
#include "data/corpus/corpus.h"
#include "trainers/checkpoint/checkpoint.h"
#include "trainers/setup/training_mixture.h"
#include "trainers/step/step.h"

namespace quire {

// Throws Error(communication) on all ranks when their weights or buffers differ in a bit.
void require_same_weights(const ParameterStore& store, Ranks& ranks);

// Saves parameters, buffers, moments, the state of every row, the cursor, the configuration, the tokenizer, the hash of
// the corpus and the kernel variant. Every rank writes its moments and rows, root writes the rest. mixture is nullptr
// without data.mix.
std::filesystem::path save_training(const std::filesystem::path& checkpoints_dir, const TrainingState& training,
                                    const RunConfig& config, const Corpus& corpus, const TrainingMixture* mixture,
                                    const Cursor& cursor, const Machine& machine, Ranks& ranks);

// Opens and verifies a checkpoint (verify: see CheckpointReader). Throws Error(checkpoint) when it has another version
// of the format.
CheckpointReader open_checkpoint(const std::filesystem::path& checkpoint, bool verify = true);

// Return the configuration and tokenizer that a checkpoint was made with.
RunConfig checkpoint_config(const CheckpointReader& reader);
std::unique_ptr<Tokenizer> checkpoint_tokenizer(const CheckpointReader& reader);

enum class Weights { trained, average };

// Loads only the weights. Throws Error(checkpoint) that names the first parameter that is missing, left over or of
// another shape; throws Error(config) when the average is requested and the run kept none.
void load_weights(const CheckpointReader& reader, ParameterStore& store, Weights which = Weights::trained);

// Loads everything that a run needs to continue bit for bit, and returns the cursor. With drop_state, carried state
// stays empty.
Cursor load_training(const CheckpointReader& reader, TrainingState& training, bool drop_state);

}  // namespace quire
