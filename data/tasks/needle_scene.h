// The contents of a needle document: what is hidden, the question, and the answer. It is one passkey, one of several
// keys, or a chain of variables (Hu et al. 2025, appendix D).
#pragma once

#include <memory>

#include "data/tasks/key_alphabet.h"
#include "data/tasks/task.h"

namespace quire {

struct NeedleScene {
  std::vector<std::vector<int32_t>> needles;  // hidden in any order
  size_t asked = 0;                           // the needle whose depth is reported
  std::vector<int32_t> question;
  std::vector<int32_t> answer;
  std::vector<uint8_t> recalled;  // per token of the answer: 1 for symbols of keys, 0 for the text between them
  int64_t scored = 0;             // the token of the answer that the published metric compares
};

class NeedleKind {
 public:
  virtual ~NeedleKind() = default;
  virtual NeedleScene scene(TaskRandom& random) const = 0;
  // Return the largest number of tokens that a scene can have.
  virtual int64_t longest_needles() const = 0;
  virtual int64_t longest_question() const = 0;
  virtual int64_t answer_length() const = 0;
};

// The tokenizer must outlive the result. Throws Error(config) that begins with `where`, as make_task() does.
std::unique_ptr<NeedleKind> make_needle_kind(const TaskConfig& config, const Tokenizer& tokenizer,
                                             const std::string& where);

}  // namespace quire
