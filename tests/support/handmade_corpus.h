// A corpus file put together by hand, with a manifest that fits it, for contents that the writer would never write.
#pragma once

#include <filesystem>
#include <vector>

#include "core/files/file_io.h"
#include "core/files/hdf5_file.h"
#include "data/corpus/corpus_manifest.h"

namespace quire::test {

struct HandmadeCorpus {
  int64_t version = kCorpusVersion;
  std::string tokenizer = "byte\n";
  std::vector<int64_t> offsets{0, 2, 3};
  Tensor marks;   // undefined: none
  Tensor chance;  // optional, as marks are
  Tensor tokens = Tensor::from<uint8_t>({1, 2, 3}, {3});

  void write(const std::filesystem::path& path) const {
    Hdf5Writer writer(path);
    writer.set_attribute("/", "format", std::string(kCorpusFormat));
    writer.set_attribute("/", "version", version);
    writer.put_text("tokenizer", tokenizer);
    writer.put("splits/train/tokens", tokens);
    if (marks.defined()) writer.put("splits/train/marks", marks);
    if (chance.defined()) writer.put("splits/train/chance", chance);
    writer.put("splits/train/offsets", Tensor::from(offsets, {static_cast<int64_t>(offsets.size())}));
    writer.put("splits/train/bytes", Tensor::from<int64_t>({2, 1}, {2}));
    writer.put("splits/train/words", Tensor::from<int64_t>({1, 1}, {2}));
    writer.put_texts("splits/train/names", {"a", "b"});
    writer.close();
    CorpusManifest manifest;
    manifest.tokenizer = "byte";
    manifest.vocabulary = 258;
    manifest.splits["train"] = {.documents = 2, .tokens = tokens.numel(), .bytes = 3, .words = 2};
    manifest.size = static_cast<int64_t>(std::filesystem::file_size(path));
    manifest.checksum = checksum_of_file(path);
    write_file_durably(manifest_path(path), manifest_to_json(manifest));
  }
};

}  // namespace quire::test
