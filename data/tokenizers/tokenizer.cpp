#include "data/tokenizers/tokenizer.h"

namespace quire {

Tokenizer::~Tokenizer() = default;

}  // namespace quire
