// The program `quire` with the mechanisms that live in tests: it links the verbs and registers them, and nothing else.
#include "tests/support/test_mechanisms.h"
#include "trainers/cli/quire_program.h"

int main(int argc, char** argv) {
  quire::test::register_test_mechanisms();
  return quire::quire_main(argc, argv);
}
