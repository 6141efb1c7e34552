// Opens a file of documents: text, or records.
#pragma once

#include "data/sources/document_reader.h"

namespace quire {

// Reads `chunk` bytes at a time. What cannot be read as its kind is Error(data) with file and line or offset.
std::unique_ptr<DocumentReader> open_documents(const DocumentFile& file, const RecordKeys& keys = {},
                                               size_t chunk = DocumentReader::kChunk);

}  // namespace quire
