// The program `quire`: one file per verb.
#include "core/ranks/processes/rank_process.h"
#include "trainers/cli/quire_program.h"

int main(int argc, char** argv) {
  return quire::run_as_rank([&] { return quire::quire_main(argc, argv); });
}
