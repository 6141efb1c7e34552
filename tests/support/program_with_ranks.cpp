// The program `quire` on several ranks that are threads of one process, with the mechanisms that live in tests. The
// environment says how many (QUIRE_TEST_RANKS) and, optionally, their hosts (QUIRE_TEST_HOSTS=a,b,a).
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include "core/log.h"
#include "core/ranks/in_process.h"
#include "tests/support/test_mechanisms.h"
#include "trainers/cli/quire_program.h"

int main(int argc, char** argv) {
  const char* const given = std::getenv("QUIRE_TEST_RANKS");
  const int size = given == nullptr ? 0 : std::atoi(given);
  if (size < 1) {
    quire::log_error("QUIRE_TEST_RANKS: give the number of ranks");
    return 2;
  }
  quire::InProcessOptions options;
  options.work_reports = true;
  if (const char* const hosts = std::getenv("QUIRE_TEST_HOSTS")) {
    std::istringstream names(hosts);
    for (std::string name; std::getline(names, name, ',');) options.hosts.push_back(name);
  }
  quire::test::register_test_mechanisms();
  std::vector<int> codes(static_cast<size_t>(size));
  quire::run_in_process(
      size, [&](quire::Ranks& ranks) { codes[static_cast<size_t>(ranks.rank())] = quire::quire_main(argc, argv); },
      options);
  if (codes == std::vector<int>(codes.size(), codes[0])) return codes[0];
  quire::log_error("ranks ended with different exit codes");
  return 99;
}
