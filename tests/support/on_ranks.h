// Runs the program on several ranks that are threads of one process (tests/support/program_with_ranks.cpp).
#pragma once

#include "tests/support/program.h"

namespace quire::test {

// hosts: "a,b,a", to simulate several hosts; empty: all ranks on one.
inline ProgramOptions options_of_ranks(int size, const std::string& hosts = "") {
  ProgramOptions options;
  options.program = "quire_with_ranks";
  options.environment.emplace_back("QUIRE_TEST_RANKS", std::to_string(size));
  if (!hosts.empty()) options.environment.emplace_back("QUIRE_TEST_HOSTS", hosts);
  return options;
}

inline ProgramResult on_ranks(int size, std::vector<std::string> arguments, const std::string& hosts = "") {
  return run_quire(std::move(arguments), options_of_ranks(size, hosts));
}

}  // namespace quire::test
