// The program `quire`: one file per verb.
#include <vector>

#include "trainers/cli/program.h"

int main(int argc, char** argv) {
  const std::vector<quire::AddVerb> verbs;
  const std::string version = "quire " QUIRE_VERSION " (" QUIRE_BUILD ")";
  return quire::run_program(argc, argv, version, verbs);
}
