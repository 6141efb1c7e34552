#include "trainers/cli/quire_program.h"

#include <string>
#include <string_view>

#include "core/ranks/processes/rank_process.h"
#include "kernels/backend.h"
#include "trainers/cli/program.h"
#include "trainers/cli/verbs.h"
#include "trainers/run/signals.h"
#include "trainers/setup/config.h"

namespace quire {

namespace {

CudaReport gpu_report() {
  try {
    return load_cuda();
  } catch (const std::exception& error) {
    return {.gpu = "", .reason = error.what()};
  }
}

// Names the build and the backends found; a missing backend is a line, not an error.
std::string version() {
  std::string text = "quire " QUIRE_VERSION " (" QUIRE_BUILD ")";
  try {
    const BackendReport& report = load_backends();
    text += "\nbackends: " + report.cpu;
    const CudaReport cuda = gpu_report();
    if (!cuda.gpu.empty()) text += ", cuda on " + cuda.gpu;
    for (const std::string& notice : report.notices) text += "\n  " + notice;
    if (cuda.gpu.empty()) text += "\n  without a GPU: " + cuda.reason;
    const MpiReport mpi = find_mpi();
    text += mpi.version.empty() ? "\n  without MPI: " + mpi.reason : "\nmpirun: that of " + mpi.version;
  } catch (const std::exception& error) {
    text += "\nbackends: none; " + std::string(error.what());
  }
  return text;
}

}  // namespace

int quire_main(int argc, const char* const* argv) {
  constexpr AddVerb kVerbs[] = {add_prepare, add_tokenizer, add_train,   add_eval,   add_compare, add_sweep,
                                add_report,  add_generate,  add_serve,   add_needle, add_trace,   add_bench,
                                add_plan,    add_config,    add_inspect, add_import, add_export};
  // The handlers are installed before anything else, so that a signal during start-up ends the work in a clean stop,
  // too.
  if (argc > 1 && (std::string_view(argv[1]) == "train" || std::string_view(argv[1]) == "sweep" ||
                   std::string_view(argv[1]) == "serve")) {
    StopSignals::of_process();
  }
  return run_program(argc, argv, {version, list_config_keys<RunConfig>, QUIRE_VERSION}, kVerbs);
}

}  // namespace quire
