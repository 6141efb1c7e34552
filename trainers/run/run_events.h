// Writes into a run's event file of TensorBoard what metrics.jsonl does not have.
#pragma once

#include <filesystem>
#include <memory>

#include "layers/parameters/parameter_store.h"
#include "trainers/evaluation/evaluation_result.h"
#include "trainers/run/event_file.h"
#include "trainers/setup/config.h"

namespace quire {

// Makes an event file in the run directory, with the configuration as text and as hyperparameters.
std::unique_ptr<EventFile> open_run_events(const std::filesystem::path& run_directory, RunConfig config,
                                           int64_t first_step);

// Appends a histogram of the losses of the evaluated documents under `tag`: bits per byte, or nats per token where
// there is no text.
void append_losses(EventFile& events, int64_t step, const EvaluationResult& result, const std::string& tag);
// Appends histograms of the weights of every parameter.
void append_weights(EventFile& events, int64_t step, const ParameterStore& store);

}  // namespace quire
