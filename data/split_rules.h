// Which document goes into which split: --split NAME=PATH adds documents, --split NAME=0.1 takes a share of the inputs.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/document_source.h"

namespace quire {

struct SplitShare {
  std::string name;
  double share = 0;  // between 0 and 1
};

struct SplitRules {
  std::vector<std::pair<std::string, std::filesystem::path>> paths;
  std::vector<SplitShare> shares;
};

// From options of the form NAME=PATH or NAME=FRACTION. A value that reads as a number is a fraction; a file of such a
// name can be given as ./0.1. Anything else is Error(config).
SplitRules parse_split_options(const std::vector<std::string>& options);

struct SplitDocuments {
  std::map<std::string, std::vector<DocumentFile>> splits;
  std::map<std::string, int64_t> empty;  // documents without a byte, left out before shares are taken
  int64_t ignored = 0;                   // files of other kinds
};

// Inputs go to "train", after the shares were taken out of them. A share is at least one document and is chosen by a
// hash of the documents' names: a run again, or on another machine, chooses the same. One file in two places, or one
// name twice in a split, is Error(data): documents for evaluation would be trained on, or could not be told apart.
SplitDocuments assign_documents(const std::vector<std::filesystem::path>& inputs, const SplitRules& rules);

}  // namespace quire
