#include <gtest/gtest.h>

#include "core/files/file_io.h"
#include "core/files/hdf5_file.h"
#include "data/corpus/corpus.h"
#include "data/corpus/prepare.h"
#include "tests/support/small_tokenizer.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

// Both count the same bytes and words; the tokens decode to the same text, and take the narrowest type.
TEST(SentencePieceCorpus, HoldsTheSameDocumentsAsOneOfBytes) {
  const test::TemporaryDirectory folder;
  PrepareOptions options;
  options.inputs = {folder / "books"};
  options.output = folder / "c.h5";
  std::filesystem::create_directories(folder / "books");
  write_file_durably(folder / "books/short.txt", "a rose is a rose\r\n");
  std::string text;
  for (int i = 0; i < 3000; ++i) text += i % 7 == 0 ? "\n\t the  quire " : i % 3 == 0 ? "\xE2\x96\x81x " : "of leaves ";
  write_file_durably(folder / "books/long.txt", text);
  write_file_durably(folder / "spm.model", test::small_sentencepiece());
  prepare_corpus(options, {});
  const auto bytes = Corpus::open(options.output);
  options.tokenizer = "spm:" + (folder / "spm.model").string();
  options.output = folder / "spm.h5";
  prepare_corpus(options, {});
  std::filesystem::remove(folder / "spm.model");  // the corpus holds it
  const auto pieces = Corpus::open(options.output);
  EXPECT_EQ(pieces->tokenizer().kind(), "spm");
  EXPECT_EQ(pieces->tokenizer().vocabulary_size(), 300);
  const Split& a = bytes->split("train");
  const Split& b = pieces->split("train");
  ASSERT_EQ(a.documents(), b.documents());
  EXPECT_EQ(Hdf5Reader::open_file(options.output).info("splits/train/tokens").dtype, DType::u16);
  for (int64_t i = 0; i < a.documents(); ++i) {
    EXPECT_EQ(a.name(i), b.name(i));
    EXPECT_EQ(a.bytes(i), b.bytes(i));
    EXPECT_EQ(a.words(i), b.words(i));
    const auto decoded = [i](const Corpus& corpus, const Split& split) {
      std::vector<int32_t> ids(static_cast<size_t>(split.length(i)));
      split.tokens(i, 0, split.length(i), ids.data());
      return corpus.tokenizer().decode(ids);
    };
    EXPECT_TRUE(decoded(*bytes, a) == decoded(*pieces, b)) << a.name(i);
  }
  EXPECT_LT(b.totals().tokens, a.totals().tokens * 8 / 10);
}
}  // namespace
}  // namespace quire
