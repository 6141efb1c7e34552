#include "data/corpus/corpus_datasets.h"

#include <algorithm>

#include "core/check.h"
#include "core/files/hdf5_file.h"
#include "data/corpus/corpus_manifest.h"
#include "data/sources/word_counter.h"

namespace quire {

namespace {

// Writes tokens. Documents that follow each other in the spool are read at once.
void write_tokens(Hdf5Writer& writer, const std::string& group, const WrittenSplit& split, const TokenSpool& spool) {
  const auto width = static_cast<int64_t>(size_of(spool.dtype()));
  std::vector<std::pair<int64_t, int64_t>> ranges;  // ranges of the spool, in bytes: begin and length
  int64_t tokens = 0;
  for (const WrittenDocument* document : split.documents) {
    const int64_t begin = document->first * width;
    if (ranges.empty() || ranges.back().first + ranges.back().second != begin) ranges.emplace_back(begin, 0);
    ranges.back().second += document->tokens * width;
    tokens += document->tokens;
  }
  size_t range = 0;
  writer.put_stream(group + "/tokens", spool.dtype(), tokens, [&](std::span<std::byte> piece) {
    while (!piece.empty()) {
      auto& [begin, left] = ranges[range];
      const size_t count = std::min(piece.size(), static_cast<size_t>(left));
      spool.read(begin, piece.first(count));
      piece = piece.subspan(count);
      begin += static_cast<int64_t>(count);
      left -= static_cast<int64_t>(count);
      if (left == 0) ++range;
    }
  });
}

void write_marks(Hdf5Writer& writer, const std::string& group, const WrittenSplit& split, const TokenSpool& spool) {
  int64_t targets = 0;
  int64_t marked = 0;
  for (const WrittenDocument* document : split.documents) {
    targets += document->tokens + 1;
    marked += document->marks;
  }
  if (marked == 0) return;
  QUIRE_CHECK(marked == targets, "corpus writer: {} of {} targets of a split have marks", marked, targets);
  size_t document = 0;
  int64_t done = 0;  // tokens of this document already written
  writer.put_stream(group + "/marks", DType::u8, targets, [&](std::span<std::byte> piece) {
    while (!piece.empty()) {
      const WrittenDocument& from = *split.documents[document];
      const size_t count = std::min(piece.size(), static_cast<size_t>(from.marks - done));
      spool.read_marks(from.first_mark + done, piece.first(count));
      piece = piece.subspan(count);
      done += static_cast<int64_t>(count);
      if (done < from.marks) continue;
      ++document;
      done = 0;
    }
  });
}

// Either all documents have a chance or none has.
void write_chance(Hdf5Writer& writer, const std::string& group, const WrittenSplit& split) {
  std::vector<double> chance;
  for (const WrittenDocument* document : split.documents) {
    if (document->chance) chance.push_back(*document->chance);
  }
  if (chance.empty()) return;
  QUIRE_CHECK(chance.size() == split.documents.size(), "corpus writer: {} of {} documents have a chance", chance.size(),
              split.documents.size());
  writer.put(group + "/chance", Tensor::from(chance, {static_cast<int64_t>(chance.size())}));
}

}  // namespace

void write_corpus_datasets(const std::filesystem::path& file, const Tokenizer& tokenizer,
                           const WrittenDocuments& documents, const TokenSpool& spool) {
  Hdf5Writer writer(file);
  writer.set_attribute("/", "format", std::string(kCorpusFormat));
  writer.set_attribute("/", "version", kCorpusVersion);
  writer.set_attribute("/", "words", std::string(kWordRule));
  writer.put_text("tokenizer", tokenizer.serialise());
  for (const auto& [name, split] : documents.splits()) {
    const std::string group = "splits/" + name;
    const auto count = static_cast<int64_t>(split.documents.size());
    std::vector<int64_t> offsets{0};
    std::vector<int64_t> bytes;
    std::vector<int64_t> words;
    std::vector<std::string> names;
    for (const WrittenDocument* document : split.documents) {
      offsets.push_back(offsets.back() + document->tokens);
      bytes.push_back(document->bytes);
      words.push_back(document->words);
      names.push_back(document->name);
    }
    write_tokens(writer, group, split, spool);
    writer.put(group + "/offsets", Tensor::from(offsets, {count + 1}));
    writer.put(group + "/bytes", Tensor::from(bytes, {count}));
    writer.put(group + "/words", Tensor::from(words, {count}));
    writer.put_texts(group + "/names", names);
    write_marks(writer, group, split, spool);
    write_chance(writer, group, split);
  }
  writer.close();
}

}  // namespace quire
