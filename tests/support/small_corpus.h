// Corpora for tests, written by the real writer.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "data/corpus/corpus_writer.h"
#include "data/tokenizers/byte_tokenizer.h"

namespace quire::test {

using SplitTexts = std::map<std::string, std::vector<std::string>>;

// Documents are named 0, 1, ...
inline CorpusManifest write_corpus(const std::filesystem::path& path, const SplitTexts& texts,
                                   const CorpusWriterOptions& options = {}) {
  const ByteTokenizer tokenizer;
  CorpusWriter writer(path, tokenizer, options);
  for (const auto& [split, documents] : texts) {
    for (size_t i = 0; i < documents.size(); ++i) {
      writer.begin_document(split, std::to_string(i), split + "/" + std::to_string(i) + ".txt");
      writer.append(documents[i]);
      writer.end_document();
    }
  }
  return writer.finish();
}

// Documents of the given lengths, with different letters.
inline std::vector<std::string> texts_of_lengths(const std::vector<int64_t>& lengths) {
  std::vector<std::string> texts;
  int64_t letter = 0;
  for (const int64_t length : lengths) {
    std::string& text = texts.emplace_back();
    for (int64_t i = 0; i < length; ++i) text += static_cast<char>('a' + letter++ % 26);
  }
  return texts;
}

}  // namespace quire::test
