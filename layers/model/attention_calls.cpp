#include "layers/model/attention_calls.h"

#include "layers/model/language_model.h"

namespace quire {

std::vector<AttentionCall> attention_calls(const ModelConfig& model, int64_t rows, int64_t subsequence,
                                           bool several_documents, DType type) {
  // The layers say it without memory, and the vocabulary does not matter.
  ParameterStore store;
  Declarations declared;
  const LanguageModel layers(Scope(store, declared, type), model, 2);
  std::vector<AttentionCall> calls = declared.attention_calls;
  for (AttentionCall& call : calls) {
    call.problem.rows = rows;
    call.problem.queries = subsequence;
    call.problem.type = type;
    call.problem.several_documents = several_documents;
  }
  return calls;
}

}  // namespace quire
