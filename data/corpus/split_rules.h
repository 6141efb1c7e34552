// Decides which document goes into which split: --split NAME=PATH adds documents, NAME=@LIST selects documents of the
// inputs by name, NAME=0.1 selects a share of them.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/corpus/corpus_writer.h"
#include "data/sources/document_source.h"

namespace quire {

struct SplitShare {
  std::string name;
  double share = 0;  // between 0 and 1
};

struct SplitRules {
  using Paths = std::vector<std::pair<std::string, std::filesystem::path>>;
  Paths paths;
  Paths lists;
  std::vector<SplitShare> shares;
};

// Parses options of the form NAME=PATH, NAME=@LIST or NAME=FRACTION. A value that is a number is a fraction; a file of
// such a name can be given as ./0.1. Anything else is Error(config).
SplitRules parse_split_options(const std::vector<std::string>& options);

struct SplitFiles {
  std::map<std::string, std::vector<DocumentFile>> splits;
  int64_t ignored = 0;  // files of other kinds
  int64_t hidden = 0;   // files and folders whose names begin with a dot
};

// Returns the files to read: inputs for "train", and those of the rules with paths. Throws Error(data) for a file in
// two places (documents for evaluation would be trained on), or two files that give one name to documents of a split
// (they could not be told apart).
SplitFiles find_split_files(const std::vector<std::filesystem::path>& inputs, const SplitRules& rules);

// Returns the names in the lists, which have one name per line. Throws Error(data) for a name in two lists.
std::map<std::string, std::vector<std::string>> read_lists(const SplitRules& rules);

// Moves shares out of "train", once it has all documents. A share is a fraction of the number of input documents,
// including those that lists have taken, and is at least one document. A hash of the texts selects the documents.
void take_shares(CorpusWriter& writer, const SplitRules& rules, int64_t inputs);

}  // namespace quire
