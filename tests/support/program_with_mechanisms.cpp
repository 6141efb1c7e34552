// The program `quire` with the mechanisms that live in tests: it links the verbs and registers them. As a rank it can
// be made to misbehave: QUIRE_TEST_AT="RANK:STEP:OPERATION:ACT" sends itself the signal of that number when the rank
// begins the operation in that step or a later one; ACT may also be "throw". With QUIRE_TEST_TOLD_TO_END it begins with
// SIGTERM, which it does not handle yet.
#include <csignal>
#include <cstdlib>
#include <sstream>

#include "core/check.h"
#include "core/ranks/processes/rank_process.h"
#include "core/ranks/ranks.h"
#include "tests/support/test_mechanisms.h"
#include "trainers/cli/quire_program.h"

namespace {

void misbehave(const std::string& order) {
  std::istringstream parts(order);
  std::string rank, step, operation, act;
  std::getline(std::getline(std::getline(std::getline(parts, rank, ':'), step, ':'), operation, ':'), act);
  quire::Ranks& ranks = quire::Ranks::current();
  if (std::stoi(rank) != ranks.rank()) return;
  ranks.set_probe([at = std::stol(step), operation, act](const quire::RankActivity& activity) {
    if (activity.step < at || activity.operation != operation) return;
    if (act == "throw") quire::fail(quire::ErrorKind::data, "thrown by the test");
    std::raise(std::stoi(act));
  });
}

}  // namespace

int main(int argc, char** argv) {
  quire::test::register_test_mechanisms();
  return quire::run_as_rank([&] {
    if (const char* order = std::getenv("QUIRE_TEST_AT")) misbehave(order);
    if (std::getenv("QUIRE_TEST_TOLD_TO_END") != nullptr) std::raise(SIGTERM);
    return quire::quire_main(argc, argv);
  });
}
