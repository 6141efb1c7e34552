// The program `quire`: one file per verb.
#include "trainers/cli/quire_program.h"

int main(int argc, char** argv) {
  return quire::quire_main(argc, argv);
}
