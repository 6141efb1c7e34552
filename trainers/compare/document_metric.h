// The figures of documents that runs are compared by.
#pragma once

#include <optional>
#include <string>

#include "trainers/evaluation/stored_evaluation.h"

namespace quire {

struct DocumentMetric {
  enum class Kind {
    bits_per_byte,
    nats_per_token,
    recall_accuracy,  // share of recalled targets (quire prepare --task) that the model predicts right
  };
  Kind kind = Kind::bits_per_byte;
  int64_t begin = 0;  // targets at earlier positions of the document do not count; 0 or a power of two

  // Returns the name that parse_metric() reads: "bits_per_byte@4096" has begin 4096.
  std::string name() const;
  // Returns the figure of a document; nothing where no target of it counts.
  std::optional<double> of(const StoredDocument& document) const;
  // Returns the figure of all targets; nothing where none counts.
  std::optional<double> of(const StoredEvaluation& evaluation) const;
  // Returns the number of targets, or of bytes, that the figure of a document is divided by.
  int64_t size_of(const StoredDocument& document) const;
  // Says whether the evaluation has what the figure is computed from.
  bool is_in(const StoredEvaluation& evaluation) const;
};

// Throws Error(config) for other names; the message begins with `where`.
DocumentMetric parse_metric(const std::string& name, const std::string& where);

}  // namespace quire
