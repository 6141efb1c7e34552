// Documents of several corpora and tasks in fixed proportions. The place of a document in the endless order alone
// decides where it comes from: places form blocks, and in each block every part has its share of the slots, in an order
// drawn for the block. A cursor therefore needs only the place, and each part is read without gaps or repetition.
#pragma once

#include <memory>
#include <vector>

#include "data/corpus/document_order.h"
#include "data/tasks/task_documents.h"

namespace quire {

// One part of a mixture: a split of a corpus, or a task.
struct MixturePart {
  double weight = 1;                              // share of the positions that are read
  const Split* split = nullptr;                   // must outlive the mixture
  std::unique_ptr<TaskDocuments> task = nullptr;  // when there is no split
};

class Mixture : public ReadingList, public Documents {
 public:
  Mixture(std::vector<MixturePart> parts, uint64_t seed);

  // Documents of all parts are numbered together: document d is document d / parts of part d % parts.
  int64_t part_of(int64_t document) const { return document % parts(); }
  int64_t number_in_part(int64_t document) const { return document / parts(); }
  int64_t parts() const { return static_cast<int64_t>(parts_.size()); }
  // Returns the share of the documents that come from a part.
  double share(int64_t part) const;
  // Return the share of the positions that come from a part, and its split (nullptr for a task).
  double weight(int64_t part) const { return parts_[static_cast<size_t>(part)].source.weight / weights_; }
  const Split* split_of(int64_t part) const { return parts_[static_cast<size_t>(part)].source.split; }

  int64_t documents() const override;  // the largest number there is, because tasks never end
  int64_t document(int64_t place) const override;
  int64_t tokens_with_bos(int64_t document) const override { return length(document) + 1; }
  int64_t length(int64_t document) const override;
  void tokens(int64_t document, int64_t begin, int64_t count, int32_t* out) const override;
  void marks(int64_t document, int64_t begin, int64_t count, uint8_t* out) const override;
  bool marked() const override { return marked_; }
  std::string name(int64_t document) const override;

 private:
  struct Part {
    MixturePart source;
    std::unique_ptr<DocumentOrder> order;  // for a split
    int64_t first_slot = 0;
    int64_t slots = 0;  // slots of a block
    const Documents& documents() const;
  };
  const Part& part(int64_t document) const { return parts_[static_cast<size_t>(part_of(document))]; }

  std::vector<Part> parts_;
  DocumentOrder slots_;
  bool marked_ = false;
  double weights_ = 0;  // sum over all parts
};

}  // namespace quire
