// The program `quire`: one file per verb.
#include <string>

#include "kernels/backend.h"
#include "trainers/cli/program.h"
#include "trainers/cli/verbs.h"

namespace {

// Names the build and the backends found; a missing one is a line, not an error.
std::string version() {
  std::string text = "quire " QUIRE_VERSION " (" QUIRE_BUILD ")";
  try {
    const quire::BackendReport& report = quire::load_backends();
    text += "\nbackends: " + report.cpu;
    const quire::CudaReport& cuda = quire::load_cuda();
    if (!cuda.gpu.empty()) text += ", cuda on " + cuda.gpu;
    for (const std::string& notice : report.notices) text += "\n  " + notice;
    if (cuda.gpu.empty()) text += "\n  without a GPU: " + cuda.reason;
  } catch (const std::exception& error) {
    text += "\nbackends: none; " + std::string(error.what());
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  constexpr quire::AddVerb kVerbs[] = {quire::add_prepare,  quire::add_tokenizer, quire::add_train, quire::add_eval,
                                       quire::add_generate, quire::add_needle,    quire::add_bench, quire::add_plan,
                                       quire::add_config,   quire::add_inspect};
  return quire::run_program(argc, argv, version, kVerbs);
}
