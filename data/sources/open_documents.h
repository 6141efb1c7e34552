// Opens a file of documents: text, or records.
#pragma once

#include "data/sources/document_reader.h"

namespace quire {

// Reads `chunk` bytes at a time. Throws Error(data) with file and line or offset for content that does not match the
// kind.
std::unique_ptr<DocumentReader> open_documents(const DocumentFile& file, const RecordKeys& keys = {},
                                               size_t chunk = DocumentReader::kChunk);

}  // namespace quire
