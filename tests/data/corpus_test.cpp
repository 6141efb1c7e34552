#include "data/corpus/corpus.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "core/files/file_io.h"
#include "tests/support/expect_error.h"
#include "tests/support/handmade_corpus.h"
#include "tests/support/small_corpus.h"
#include "tests/support/small_disk.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

using test::HandmadeCorpus;
using test::SmallDisk;
using test::TemporaryDirectory;
using test::write_corpus;

std::vector<std::string> files_in(const std::filesystem::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : std::filesystem::directory_iterator(folder)) names.push_back(entry.path().filename());
  std::sort(names.begin(), names.end());
  return names;
}

std::vector<int32_t> tokens_of(const Split& split, int64_t document, int64_t begin, int64_t count) {
  std::vector<int32_t> ids(static_cast<size_t>(count));
  split.tokens(document, begin, count, ids.data());
  return ids;
}

TEST(Corpus, HoldsWhatWasWritten) {
  const TemporaryDirectory folder;
  const CorpusManifest manifest =
      write_corpus(folder / "c.h5", {{"train", {"two words\n", "", "\xC3\xA9", " a\tb\vc "}}, {"valid", {"held out"}}});
  EXPECT_EQ(files_in(folder.path()), (std::vector<std::string>{"c.h5", "c.h5.manifest"}));

  const auto corpus = Corpus::open(folder / "c.h5");
  EXPECT_EQ(corpus->split_names(), (std::vector<std::string>{"train", "valid"}));
  EXPECT_EQ(corpus->tokenizer().kind(), "byte");
  EXPECT_EQ(corpus->hash(), manifest.checksum);
  EXPECT_EQ(corpus->manifest().splits, manifest.splits);
  const Split& train = corpus->split("train");
  ASSERT_EQ(train.documents(), 3);  // the empty one is dropped
  EXPECT_EQ(train.name(0), "0");
  EXPECT_EQ(train.name(1), "2");
  EXPECT_EQ(train.length(0), 10);
  EXPECT_EQ(train.length(1), 2);
  EXPECT_EQ(train.bytes(1), 2);
  EXPECT_EQ(train.words(0), 2);
  EXPECT_EQ(train.words(1), 1);
  EXPECT_EQ(train.words(2), 3);
  EXPECT_EQ(train.totals(), (SplitTotals{.documents = 3, .tokens = 19, .bytes = 19, .words = 6}));
  EXPECT_EQ(tokens_of(train, 0, 4, 3), (std::vector<int32_t>{'w', 'o', 'r'}));
  EXPECT_EQ(tokens_of(train, 1, 0, 2), (std::vector<int32_t>{0xC3, 0xA9}));
  EXPECT_ERROR(tokens_of(train, 1, 1, 2), ErrorKind::internal, "tokens 1..3 of 2");
  EXPECT_ERROR(corpus->split("test"), ErrorKind::config, "no split \"test\"; there is: train, valid");
}

TEST(Corpus, EqualDocumentsGiveEqualFiles) {
  const TemporaryDirectory folder;
  const test::SplitTexts texts{{"train", {"one", "two"}}};
  EXPECT_EQ(write_corpus(folder / "a.h5", texts).checksum, write_corpus(folder / "b.h5", texts).checksum);
}

TEST(Corpus, WordsAndSequencesMayCrossChunks) {
  const TemporaryDirectory folder;
  const ByteTokenizer tokenizer;
  CorpusWriter writer(folder / "c.h5", tokenizer, {});
  writer.begin_document("train", "x", "x.txt");
  for (const char* chunk : {"on", "e tw", "o ", " thr\xE2", "\x82", "\xAC"}) writer.append(chunk);
  writer.end_document();
  EXPECT_EQ(writer.finish().splits.at("train").words, 3);
}

TEST(Corpus, LargeSplitsPassThroughTheScratchFile) {
  const TemporaryDirectory folder;
  std::string text(3'000'001, ' ');
  for (size_t i = 0; i < text.size(); ++i) text[i] = static_cast<char>('a' + i % 23);
  write_corpus(folder / "c.h5", {{"train", {text, "end"}}});
  const auto corpus = Corpus::open(folder / "c.h5");
  std::vector<int32_t> ids = tokens_of(corpus->split("train"), 0, 0, 3'000'001);
  for (size_t i = 0; i < ids.size(); ++i) ASSERT_EQ(ids[i], text[i]);
  EXPECT_EQ(tokens_of(corpus->split("train"), 1, 0, 3), (std::vector<int32_t>{'e', 'n', 'd'}));
}

TEST(Corpus, InvalidUtf8IsRefusedWithFileAndOffset) {
  const TemporaryDirectory folder;
  EXPECT_ERROR(write_corpus(folder / "c.h5", {{"train", {"good", "ab\xFF"}}}), ErrorKind::data,
               "train/1.txt: invalid UTF-8 at byte 2");
  EXPECT_ERROR(write_corpus(folder / "c.h5", {{"train", {"abc\xE2\x82"}}}), ErrorKind::data,
               "train/0.txt: invalid UTF-8 at byte 3");
  EXPECT_TRUE(files_in(folder.path()).empty());
  write_corpus(folder / "c.h5", {{"train", {"ab\xFF"}}}, {.any_bytes = true});
  EXPECT_EQ(tokens_of(Corpus::open(folder / "c.h5")->split("train"), 0, 2, 1), std::vector<int32_t>{255});
}

TEST(Corpus, EmptySplitsAreRefused) {
  const TemporaryDirectory folder;
  EXPECT_ERROR(write_corpus(folder / "c.h5", {}), ErrorKind::data, "no document");
  EXPECT_ERROR(write_corpus(folder / "c.h5", {{"train", {"x"}}, {"valid", {"", ""}}}), ErrorKind::data,
               "split valid has no document left");
  EXPECT_ERROR(write_corpus(folder / "c.h5", {{"a/b", {"x"}}}), ErrorKind::config, "split name \"a/b\"");
  EXPECT_TRUE(files_in(folder.path()).empty());
}

TEST(Corpus, AnOlderCorpusIsReplacedOnlyOnDemandAndOnlyByAWholeOne) {
  const TemporaryDirectory folder;
  const std::string old_hash = write_corpus(folder / "c.h5", {{"train", {"old"}}}).checksum;
  EXPECT_ERROR(write_corpus(folder / "c.h5", {{"train", {"new"}}}), ErrorKind::config, "use --force");
  EXPECT_ERROR(write_corpus(folder / "c.h5", {{"train", {"\xFF"}}}, {.force = true}), ErrorKind::data, "UTF-8");
  EXPECT_EQ(Corpus::open(folder / "c.h5")->hash(), old_hash);
  write_corpus(folder / "c.h5", {{"train", {"new"}}}, {.force = true});
  EXPECT_NE(Corpus::open(folder / "c.h5")->hash(), old_hash);
  EXPECT_EQ(files_in(folder.path()).size(), 2U);
}

TEST(Corpus, AFullDiskLeavesTheOlderCorpus) {
  const SmallDisk disk(512);
  if (!disk.mounted()) GTEST_SKIP() << "mounting a small tmpfs is not permitted here";
  const std::filesystem::path path = disk.path() / "c.h5";
  const std::string old_hash = write_corpus(path, {{"train", {"old"}}}).checksum;
  // 300 kB fit once, as scratch file, and not twice; 3 MB do not fit at all.
  for (const size_t size : {size_t{300'000}, size_t{3'000'000}}) {
    EXPECT_ERROR(write_corpus(path, {{"train", {std::string(size, 'n')}}}, {.force = true}), ErrorKind::disk,
                 "No space left on device");
    EXPECT_EQ(Corpus::open(path)->hash(), old_hash);
    EXPECT_EQ(files_in(disk.path()).size(), 2U);
  }
}

TEST(Corpus, DamageIsFoundBeforeTheFileIsUsed) {
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder / "c.h5";
  write_corpus(path, {{"train", {"some text", "more"}}});
  const std::vector<std::byte> good = read_file(path);

  for (const size_t position : {size_t{0}, size_t{9}, good.size() / 2, good.size() - 1}) {
    std::vector<std::byte> bytes = good;
    bytes[position] ^= std::byte{4};
    write_file_durably(path, bytes);
    EXPECT_ERROR(Corpus::open(path), ErrorKind::data, "damaged; run quire prepare again");
  }
  for (const size_t size : {size_t{0}, size_t{1}, good.size() - 1}) {
    write_file_durably(path, std::span(good).first(size));
    EXPECT_ERROR(Corpus::open(path), ErrorKind::data, "truncated or replaced; run quire prepare again");
  }
  write_file_durably(path, good);
  EXPECT_NO_THROW(Corpus::open(path));

  const std::string manifest = read_text_file(manifest_path(path));
  write_file_durably(manifest_path(path), manifest.substr(0, manifest.size() / 2));
  EXPECT_ERROR(Corpus::open(path), ErrorKind::data, "damaged manifest; run quire prepare again");
  write_file_durably(manifest_path(path), "[1, 2]");
  EXPECT_ERROR(Corpus::open(path), ErrorKind::data, "damaged manifest; run quire prepare again");
  std::filesystem::remove(manifest_path(path));
  EXPECT_ERROR(Corpus::open(path), ErrorKind::data,
               "has no manifest, which is kept beside it: move that, too, or run quire prepare again");
  std::filesystem::remove(path);
  EXPECT_ERROR(Corpus::open(path), ErrorKind::data, "no such corpus");
}

TEST(Corpus, ContentThatDoesNotFitIsRefused) {
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder / "c.h5";
  HandmadeCorpus{}.write(path);
  EXPECT_NO_THROW(Corpus::open(path)->split("train"));
  HandmadeCorpus newer;
  newer.version = 2;
  newer.write(path);
  EXPECT_ERROR(Corpus::open(path), ErrorKind::data, "format version 2, this program reads version 1");

  const std::vector<std::vector<int64_t>> wrong_offsets{{0, 3, 2}, {0, 3, 3}, {1, 2, 3}, {0, 2, 4}, {0, 3}};
  for (const std::vector<int64_t>& offsets : wrong_offsets) {
    HandmadeCorpus wrong;
    wrong.offsets = offsets;
    wrong.write(path);
    EXPECT_ERROR(Corpus::open(path), ErrorKind::data, "run quire prepare again");
  }
  HandmadeCorpus floating;
  floating.tokens = Tensor::from<float>({1, 2, 3}, {3});
  floating.write(path);
  EXPECT_ERROR(Corpus::open(path), ErrorKind::data, "the tokens have the wrong type");
}

TEST(Corpus, AManifestOfOtherContentsIsRefused) {
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder / "c.h5";
  for (const char* text : {"\"documents\": 2", "\"tokens\": 3", "\"vocabulary\": 258", "\"train\"", "\"byte\""}) {
    HandmadeCorpus{}.write(path);
    std::string manifest = read_text_file(manifest_path(path));
    const size_t at = manifest.find(text);
    ASSERT_NE(at, std::string::npos) << text;
    char& last_but_one = manifest[at + std::string(text).size() - 2];
    last_but_one = last_but_one == ' ' ? '1' : '7';
    write_file_durably(manifest_path(path), manifest);
    EXPECT_ERROR(Corpus::open(path), ErrorKind::data, "run quire prepare again");
  }
}

TEST(Corpus, TokenIdsAreCheckedAgainstTheVocabulary) {
  const TemporaryDirectory folder;
  const std::filesystem::path path = folder / "c.h5";
  HandmadeCorpus wide;
  wide.tokens = Tensor::from<uint16_t>({1, 257, 3}, {3});
  wide.write(path);
  EXPECT_EQ(tokens_of(Corpus::open(path)->split("train"), 0, 0, 2), (std::vector<int32_t>{1, 257}));
  wide.tokens = Tensor::from<uint16_t>({1, 3, 258}, {3});
  wide.write(path);
  EXPECT_ERROR(Corpus::open(path)->split("train"), ErrorKind::data, "token 2 is 258, beyond the vocabulary of 258");
  wide.tokens = Tensor::from<int32_t>({1, -1, 3}, {3});
  wide.write(path);
  EXPECT_ERROR(Corpus::open(path)->split("train"), ErrorKind::data, "token 1 is -1");
  wide.tokens = Tensor::from<int32_t>({1, 200, 3}, {3});
  wide.write(path);
  EXPECT_EQ(tokens_of(Corpus::open(path)->split("train"), 1, 0, 1), std::vector<int32_t>{3});
}

// The last page of a file that became shorter reads as zeros.
TEST(Corpus, TokensOfAFileThatBecameShorterAreNotUsed) {
  const TemporaryDirectory folder;
  write_corpus(folder / "c.h5", {{"train", {"abcdef"}}});
  const auto corpus = Corpus::open(folder / "c.h5");
  const Split& split = corpus->split("train");
  std::vector<int32_t> ids(6);
  split.tokens(0, 0, 6, ids.data());
  std::filesystem::resize_file(folder / "c.h5", std::filesystem::file_size(folder / "c.h5") - 1);
  EXPECT_ERROR(split.tokens(0, 0, 6, ids.data()), ErrorKind::data, "put the whole file back");
}

}  // namespace
}  // namespace quire
