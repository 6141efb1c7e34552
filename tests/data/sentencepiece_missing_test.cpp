// Tests the source that stands in for SentencePiece, even when the build has the library.
#include <gtest/gtest.h>

#include "core/files/file_io.h"
#include "data/corpus/tokenizer_training.h"
#include "data/tokenizers/make_tokenizer.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

TEST(SentencePieceMissing, EveryUseNamesThePackage) {
  const test::TemporaryDirectory folder;
  write_file_durably(folder / "spm.model", "a model");
  write_file_durably(folder / "a.txt", "a text");
  EXPECT_ERROR(parse_tokenizer_option("spm:" + (folder / "spm.model").string()), ErrorKind::config,
               "built without SentencePiece; apt-get install libsentencepiece-dev");
  EXPECT_ERROR(make_tokenizer("spm\n00", "c.h5", ErrorKind::data), ErrorKind::data,
               "c.h5: this quire was built without");
  TokenizerTraining training;
  training.inputs = {folder / "a.txt"};
  training.output = folder / "new.model";
  EXPECT_ERROR(train_tokenizer(training, {}), ErrorKind::config, "libsentencepiece-dev");
  EXPECT_EQ(parse_tokenizer_option("byte")->kind(), "byte");
}

}  // namespace
}  // namespace quire
