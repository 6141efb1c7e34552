// Comparisons of runs as quire compare prints them, for verbs that end in one.
#pragma once

#include <string>
#include <vector>

namespace quire {

struct CompareArguments {
  std::vector<std::string> runs;
  std::string baseline;  // one of the runs; empty: the first
  std::string split;     // empty: evaluate.split of the baseline
  bool best = false;
  bool stored = false;
  std::string html;
  bool json = false;
};

// Throws Error(config) unless FILE is empty, new or an earlier page of a comparison.
void require_comparison_page(const std::string& file);
// Compares the runs and prints the result; for rank 0.
void print_comparison(const CompareArguments& arguments);

}  // namespace quire
