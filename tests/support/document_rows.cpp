#include "tests/support/document_rows.h"

#include "core/random.h"

namespace quire::test {

namespace {

// The reading position of a row.
struct Reader {
  const std::vector<Document>* documents;
  int64_t first_document;  // number of documents[0]
  size_t current = 0;
  int64_t offset = 0;

  bool done() const { return current == documents->size(); }

  void fill(Batch& batch, int64_t row, Pack pack, int64_t alignment) {
    int32_t segment = 0;
    if (!done() && offset == 0) batch.starts[static_cast<size_t>(row)] = 1;
    for (int64_t t = 0; t < batch.length && !done(); ++t) {
      const Document& document = (*documents)[current];
      const auto at = static_cast<size_t>(batch.at(row, t));
      batch.tokens[at] = document[static_cast<size_t>(offset)];
      batch.targets[at] = document[static_cast<size_t>(offset) + 1];
      batch.loss_mask[at] = 1;
      batch.segment[at] = segment;
      batch.position[at] = static_cast<int32_t>(offset);
      batch.document[at] = first_document + static_cast<int64_t>(current);
      ++batch.target_count;
      if (++offset + 1 < static_cast<int64_t>(document.size())) continue;
      offset = 0;
      ++current;
      ++segment;
      if (pack == Pack::pad) return;
      t = (t + alignment) / alignment * alignment - 1;
    }
  }
};

}  // namespace

std::vector<std::vector<Document>> random_documents(const std::vector<std::vector<int64_t>>& lengths,
                                                    int32_t vocabulary, uint32_t seed) {
  std::vector<std::vector<Document>> rows;
  for (size_t row = 0; row < lengths.size(); ++row) {
    rows.emplace_back();
    for (size_t i = 0; i < lengths[row].size(); ++i) {
      Document document;
      for (int64_t n = 0; n <= lengths[row][i]; ++n) {
        const auto bits = philox({seed, 0}, hash_scope("documents"), static_cast<uint32_t>(row),
                                 static_cast<uint32_t>(i), static_cast<uint32_t>(n));
        document.push_back(static_cast<int32_t>(bits[0] % static_cast<uint32_t>(vocabulary)));
      }
      rows.back().push_back(document);
    }
  }
  return rows;
}

std::vector<Batch> cut(const std::vector<std::vector<Document>>& rows, int64_t length, Pack pack, int64_t alignment) {
  std::vector<Reader> readers;
  int64_t documents = 0;
  for (const std::vector<Document>& row : rows) {
    readers.push_back({&row, documents});
    documents += static_cast<int64_t>(row.size());
  }
  const auto left = [&] {
    for (const Reader& reader : readers) {
      if (!reader.done()) return true;
    }
    return false;
  };
  std::vector<Batch> batches;
  while (left()) {
    batches.push_back(Batch::empty(static_cast<int64_t>(rows.size()), length));
    for (size_t row = 0; row < readers.size(); ++row) {
      readers[row].fill(batches.back(), static_cast<int64_t>(row), pack, alignment);
    }
  }
  return batches;
}

std::vector<Batch> with_inserted(std::vector<Batch> batches, const Insertion& insertion, int32_t vocabulary) {
  for (Batch& batch : batches) {
    if (insertion.any()) batch.inserted.assign(batch.tokens.size(), 0);
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
      if (batch.segment[i] < 0) continue;
      if (insertion.predicts() && insertion.is_inserted(batch.position[i] + 1)) {
        batch.target_count -= batch.loss_mask[i];
        batch.targets[i] = vocabulary + static_cast<int32_t>(insertion.id_at(batch.position[i] + 1));
        batch.loss_mask[i] = 0;
      }
      if (!insertion.is_inserted(batch.position[i])) continue;
      batch.tokens[i] = vocabulary + static_cast<int32_t>(insertion.id_at(batch.position[i]));
      batch.inserted[i] = 1;
      if (insertion.predicts()) continue;
      batch.target_count -= batch.loss_mask[i];
      batch.targets[i] = 0;
      batch.loss_mask[i] = 0;
    }
  }
  return batches;
}

std::vector<Batch> only(std::vector<Batch> batches, const std::function<bool(int64_t document)>& kept) {
  for (Batch& batch : batches) {
    for (size_t i = 0; i < batch.tokens.size(); ++i) {
      if (batch.segment[i] < 0 || kept(batch.document[i])) continue;
      batch.target_count -= batch.loss_mask[i];
      batch.tokens[i] = batch.targets[i] = batch.position[i] = 0;
      batch.loss_mask[i] = 0;
      if (!batch.inserted.empty()) batch.inserted[i] = 0;
      batch.segment[i] = -1;
      batch.document[i] = -1;
    }
  }
  return batches;
}

}  // namespace quire::test
