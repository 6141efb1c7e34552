#include "data/sources/document_reader.h"

namespace quire {

DocumentReader::~DocumentReader() = default;

}  // namespace quire
