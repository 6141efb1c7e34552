#include "data/corpus/prepare.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "core/files/file_io.h"
#include "data/corpus/corpus.h"
#include "tests/support/compress.h"
#include "tests/support/expect_error.h"
#include "tests/support/handmade_corpus.h"
#include "tests/support/temporary_directory.h"
#include "trainers/cli/program.h"
#include "trainers/cli/verbs.h"

namespace quire {
namespace {

class PrepareTest : public testing::Test {
 protected:
  void SetUp() override {
    std::filesystem::create_directories(folder_ / "books/poems");
    std::filesystem::create_directories(folder_ / "held_out");
    for (int i = 0; i < 10; ++i) {
      write_file_durably(folder_ / ("books/" + std::to_string(i) + ".txt"), "book " + std::to_string(i));
    }
    write_file_durably(folder_ / "books/poems/rose.txt", "a rose is a rose");
    write_file_durably(folder_ / "books/notes.md", "no document");
    write_file_durably(folder_ / "books/empty.txt", "");
    write_file_durably(folder_ / "held_out/last.txt", "the last words");
    options_.inputs = {folder_ / "books"};
    options_.output = folder_ / "c.h5";
  }

  PrepareReport prepare() const { return prepare_corpus(options_, {}); }
  std::vector<std::string> names(const std::string& split) const {
    const auto corpus = Corpus::open(options_.output);
    std::vector<std::string> result;
    for (int64_t i = 0; i < corpus->split(split).documents(); ++i) result.push_back(corpus->split(split).name(i));
    return result;
  }

  test::TemporaryDirectory folder_;
  PrepareOptions options_;
};

// In a corpus of an earlier version, words are those between ASCII white space.
TEST_F(PrepareTest, TheRuleOfWordsIsRecorded) {
  write_file_durably(folder_ / "books/0.txt", "one\xE2\x80\x83two\xC2\xA0three");
  EXPECT_EQ(prepare().splits.at("train").totals.words, 26);
  EXPECT_EQ(Corpus::open(options_.output)->word_rule(), "unicode");
  test::HandmadeCorpus former;
  former.write(folder_ / "former.h5");
  EXPECT_EQ(Corpus::open(folder_ / "former.h5")->word_rule(), "ascii");
}

TEST_F(PrepareTest, EverythingIsTrainWithoutSplits) {
  int64_t calls = 0;
  PrepareProgress last;
  const PrepareReport report = prepare_corpus(options_, [&](const PrepareProgress& progress) {
    ++calls;
    last = progress;
  });
  ASSERT_EQ(report.splits.size(), 1U);
  const auto& train = report.splits.at("train");
  EXPECT_EQ(train.totals, (SplitTotals{.documents = 11, .tokens = 76, .bytes = 76, .words = 25}));
  EXPECT_EQ(train.dropped, 1);
  EXPECT_EQ(report.ignored, 1);
  EXPECT_EQ(report.vocabulary, 258);
  EXPECT_EQ(calls, 12);  // once a file, and at the end; the empty file has nothing to read
  EXPECT_EQ(last.documents, 12);
  EXPECT_EQ(last.bytes, last.total_bytes);
  EXPECT_EQ(names("train").back(), "poems/rose");
}

TEST_F(PrepareTest, SplitsFromPaths) {
  options_.splits = {"valid=" + (folder_ / "held_out").string()};
  prepare();
  EXPECT_EQ(names("train").size(), 11U);
  EXPECT_EQ(names("valid"), std::vector<std::string>{"last"});
  // This has only splits, and a split from several paths.
  options_.inputs.clear();
  options_.force = true;
  options_.splits = {"a=" + (folder_ / "held_out").string(), "a=" + (folder_ / "books/1.txt").string()};
  const PrepareReport report = prepare();
  EXPECT_EQ(report.splits.size(), 1U);
  EXPECT_EQ(names("a"), (std::vector<std::string>{"last", "1"}));
}

TEST_F(PrepareTest, SharesAreStable) {
  options_.splits = {"valid=0.3", "test=0.01"};
  prepare();
  const std::vector<std::string> valid = names("valid");
  const std::vector<std::string> test = names("test");
  EXPECT_EQ(valid.size(), 3U);  // 3.3 documents
  EXPECT_EQ(test.size(), 1U);   // at least one
  EXPECT_EQ(names("train").size(), 7U);

  // Another place, another order of inputs: the same choice.
  std::filesystem::rename(folder_ / "books", folder_ / "moved");
  std::filesystem::rename(folder_ / "moved/poems", folder_ / "poems");
  options_.inputs = {folder_ / "poems", folder_ / "moved"};
  options_.force = true;
  prepare();
  EXPECT_EQ(names("valid"), valid);
  EXPECT_EQ(names("test"), test);
  // Another document: those that were held out before stay so, or go for the new one.
  write_file_durably(folder_ / "poems/another.txt", "another rose");
  prepare();
  for (const std::string& name : names("train")) {
    EXPECT_TRUE(name == valid.back() || std::find(valid.begin(), valid.end(), name) == valid.end()) << name;
  }
}

TEST_F(PrepareTest, EqualTextsGoIntoOneSplit) {
  for (int i = 0; i < 10; ++i) {
    write_file_durably(folder_ / ("books/copy" + std::to_string(i) + ".txt"), "book " + std::to_string(i));
  }
  options_.splits = {"valid=0.4"};
  prepare();
  std::set<std::string> valid;
  for (const std::string& name : names("valid")) valid.insert(name);
  EXPECT_GE(valid.size(), 8U);
  for (int i = 0; i < 10; ++i) {
    EXPECT_EQ(valid.count(std::to_string(i)), valid.count("copy" + std::to_string(i))) << i;
  }
}

TEST_F(PrepareTest, ListsPickDocuments) {
  write_file_durably(folder_ / "held",
                     "\xEF\xBB\xBF"
                     "3\r\n\npoems/rose\n");
  write_file_durably(folder_ / "other", "7");
  options_.splits = {"valid=@" + (folder_ / "held").string(), "test=@" + (folder_ / "other").string(), "dev=0.1"};
  const PrepareReport report = prepare();
  EXPECT_EQ(names("valid"), (std::vector<std::string>{"3", "poems/rose"}));
  EXPECT_EQ(names("test"), std::vector<std::string>{"7"});
  EXPECT_EQ(names("dev").size(), 1U);
  EXPECT_EQ(names("train").size(), 7U);
  EXPECT_EQ(report.splits.at("valid").totals, (SplitTotals{.documents = 2, .tokens = 22, .bytes = 22, .words = 7}));
  // Tokens go with their documents.
  const auto corpus = Corpus::open(options_.output);
  const Split& valid = corpus->split("valid");
  std::vector<int32_t> ids(static_cast<size_t>(valid.length(1)));
  valid.tokens(1, 0, valid.length(1), ids.data());
  EXPECT_EQ(corpus->tokenizer().decode(ids), "a rose is a rose");
}

TEST_F(PrepareTest, ListsThatDoNotFit) {
  const auto with_lists = [this](const std::string& first, const std::string& second = "8") {
    write_file_durably(folder_ / "first", first);
    write_file_durably(folder_ / "second", second);
    options_.splits = {"valid=@" + (folder_ / "first").string(), "test=@" + (folder_ / "second").string()};
    prepare();
  };
  EXPECT_ERROR(with_lists("1\nrose\n"), ErrorKind::data, "first: no document is named \"rose\"");
  EXPECT_ERROR(with_lists("1\n2", "2\n"), ErrorKind::data, "\"2\" is listed twice, for split valid and for split test");
  EXPECT_ERROR(with_lists("1\n1"), ErrorKind::data, "listed twice");
  EXPECT_ERROR(with_lists("\n"), ErrorKind::data, "the list for split valid is empty");
  options_.splits = {"valid=@" + (folder_ / "absent").string()};
  EXPECT_ERROR(prepare(), ErrorKind::data, "absent: no such file");
  options_.splits = {"train=@" + (folder_ / "first").string()};
  EXPECT_ERROR(prepare(), ErrorKind::config, "train is what the other lists leave");
  options_.splits = {"valid=@" + (folder_ / "first").string()};
  options_.inputs.clear();
  EXPECT_ERROR(prepare(), ErrorKind::config, "a list names documents of --input");
  EXPECT_FALSE(std::filesystem::exists(options_.output));
}

TEST_F(PrepareTest, OneTextInTwoSplitsIsRefused) {
  write_file_durably(folder_ / "held_out/copy.txt", "book 4");
  options_.splits = {"valid=" + (folder_ / "held_out").string()};
  EXPECT_ERROR(prepare(), ErrorKind::data, "split valid: copy is the same text as 4 of split train");
  EXPECT_FALSE(std::filesystem::exists(options_.output));
  options_.allow_duplicates = true;
  EXPECT_EQ(prepare().splits.at("valid").totals.documents, 2);
}

TEST_F(PrepareTest, RecordsAndCompressedFilesAreDocumentsToo) {
  const std::string lines =
      "{\"id\": \"x\", \"body\": \"first record\"}\n{\"id\": \"y\", \"body\": \"\"}\n{\"id\": \"z\", \"body\": "
      "\"third\\nrecord here\"}\n";
  write_file_durably(folder_ / "books/poems/more.jsonl.gz", test::gzipped(lines));
  write_file_durably(folder_ / "books/zebra.txt.zst", test::zstandard("black and white"));
  write_file_durably(folder_ / "held", "z");
  options_.keys = {.text = "body", .name = "id"};
  options_.splits = {"valid=@" + (folder_ / "held").string()};
  const PrepareReport report = prepare();
  EXPECT_EQ(report.splits.at("train").totals.documents, 13);
  EXPECT_EQ(report.splits.at("train").dropped, 2);
  EXPECT_EQ(report.splits.at("valid").totals, (SplitTotals{.documents = 1, .tokens = 17, .bytes = 17, .words = 3}));
  const std::vector<std::string> train = names("train");
  EXPECT_EQ(std::vector<std::string>(train.end() - 3, train.end()),
            (std::vector<std::string>{"x", "poems/rose", "zebra"}));
  // A name that is there already.
  write_file_durably(folder_ / "books/a.jsonl", "{\"id\": \"0\", \"body\": \"nought\"}\n");
  options_.force = true;
  EXPECT_ERROR(prepare(), ErrorKind::data, "a.jsonl: line 1: split train has a document named 0 already");
}

TEST_F(PrepareTest, RefusesWhatMakesNoSense) {
  const auto with_splits = [this](std::vector<std::string> splits) {
    options_.splits = std::move(splits);
    prepare();
  };
  EXPECT_ERROR(with_splits({"valid"}), ErrorKind::config,
               "--split valid: expected NAME=PATH, NAME=@LIST or NAME=FRACTION");
  EXPECT_ERROR(with_splits({"=x"}), ErrorKind::config, "expected NAME=PATH");
  EXPECT_ERROR(with_splits({"valid=1.5"}), ErrorKind::config, "a fraction is more than 0 and less than 1");
  EXPECT_ERROR(with_splits({"valid=nan"}), ErrorKind::config, "a fraction is more than 0 and less than 1");
  EXPECT_ERROR(with_splits({"train=0.5"}), ErrorKind::config, "train is what the other fractions leave");
  EXPECT_ERROR(with_splits({"valid=0.1", "valid=0.2"}), ErrorKind::config, "has a fraction already");
  EXPECT_ERROR(with_splits({"valid=0.6", "test=0.5"}), ErrorKind::data, "leaves no document");
  EXPECT_ERROR(with_splits({"valid=" + (folder_ / "books/1.txt").string()}), ErrorKind::data,
               "given twice, for split train and for split valid");
  EXPECT_ERROR(with_splits({"valid=" + (folder_ / "nowhere").string()}), ErrorKind::data, "no such file or folder");
  options_.inputs.clear();
  EXPECT_ERROR(with_splits({}), ErrorKind::config, "nothing to prepare");
  EXPECT_ERROR(with_splits({"valid=0.1"}), ErrorKind::config, "there is no --input");
  EXPECT_FALSE(std::filesystem::exists(options_.output));
}

TEST_F(PrepareTest, TwoDocumentsOfOneNameAreRefused) {
  write_file_durably(folder_ / "held_out/1.txt", "another first book");
  options_.inputs.push_back(folder_ / "held_out");
  EXPECT_ERROR(prepare(), ErrorKind::data, "split train: two documents are named 1");
}

TEST_F(PrepareTest, InvalidUtf8NamesTheFile) {
  write_file_durably(folder_ / "books/latin1.txt", "caf\xE9 au lait");
  EXPECT_ERROR(prepare(), ErrorKind::data, "books/latin1.txt: invalid UTF-8 at byte 3");
  EXPECT_FALSE(std::filesystem::exists(options_.output));
  options_.any_bytes = true;
  EXPECT_EQ(prepare().splits.at("train").totals.documents, 12);
}

// When quire prepare is killed between its two renames, the manifest still has its other name.
TEST_F(PrepareTest, WhatWasKilledBetweenTwoRenamesIsFinished) {
  const std::filesystem::path manifest = manifest_path(options_.output);
  const std::filesystem::path unfinished = with_suffix(manifest, ".partial");
  prepare();
  const std::string before = read_text_file(manifest);
  options_.inputs = {folder_ / "held_out"};
  options_.force = true;
  prepare();
  const std::string after = read_text_file(manifest);
  for (const bool replaced : {false, true}) {
    // Opening finishes it, and so does quire prepare before it looks at what is there.
    for (const bool opened : {true, false}) {
      std::filesystem::rename(manifest, unfinished);
      if (replaced) write_file_durably(manifest, before);
      if (opened) {
        EXPECT_EQ(names("train"), std::vector<std::string>{"last"});
      } else {
        options_.force = false;
        EXPECT_ERROR(prepare(), ErrorKind::config, "c.h5: exists already; use --force to replace it");
      }
      EXPECT_EQ(read_text_file(manifest), after);
      EXPECT_FALSE(std::filesystem::exists(unfinished));
    }
  }
  options_.force = true;
  // Killed before the first rename, or while the manifest was written: the corpus is the older one.
  for (const std::string& text : {before, after.substr(0, 40)}) {
    write_file_durably(unfinished, text);
    EXPECT_EQ(names("train"), std::vector<std::string>{"last"});
    EXPECT_EQ(read_text_file(manifest), after);
    options_.inputs = {folder_ / "books"};
    prepare();
    EXPECT_EQ(read_text_file(manifest), before);
    options_.inputs = {folder_ / "held_out"};
    prepare();
  }
}

TEST_F(PrepareTest, OnlyEmptyDocumentsAreNoCorpus) {
  options_.inputs = {folder_ / "books/empty.txt"};
  EXPECT_ERROR(prepare(), ErrorKind::data, "split train has no document left");
}

TEST_F(PrepareTest, TheVerbPrintsOneJsonObject) {
  std::string out;
  std::string errors;
  write_file_durably(folder_ / "books/r.jsonl", "{\"text\": \"good\"}\n{\"text\": NaN}\n{\"body\": \"x\"}\n");
  write_file_durably(folder_ / "books/._r.jsonl", "resource fork");
  const auto run = [&](const std::vector<std::string>& arguments) {
    std::vector<const char*> argv{"quire"};
    for (const std::string& argument : arguments) argv.push_back(argument.c_str());
    constexpr AddVerb kVerbs[] = {add_prepare};
    testing::internal::CaptureStdout();
    testing::internal::CaptureStderr();
    const int code =
        run_program(static_cast<int>(argv.size()), argv.data(), {[] { return std::string(); }, {}}, kVerbs);
    out = testing::internal::GetCapturedStdout();
    errors = testing::internal::GetCapturedStderr();
    return code;
  };
  EXPECT_EQ(run({"prepare", "--input", folder_ / "books", "--output", options_.output}), 3);
  EXPECT_NE(errors.find("r.jsonl: line 2: not a JSON object"), std::string::npos) << errors;
  EXPECT_NE(errors.find("; --skip-bad-records leaves such records out"), std::string::npos) << errors;
  EXPECT_EQ(run({"prepare", "--input", folder_ / "books", "--output", options_.output, "--skip-bad-records"}), 0);
  EXPECT_NE(out.find("2 bad records were left out: 1 no \"text\", 1 not JSON"), std::string::npos) << out;
  EXPECT_NE(out.find("1 hidden files and folders were left out"), std::string::npos) << out;
  EXPECT_EQ(read_manifest(options_.output).left_out,
            (std::map<std::string, int64_t>{{"no \"text\"", 1}, {"not JSON", 1}}));
  EXPECT_EQ(run({"prepare", "--input", folder_ / "books", "--split", "valid=0.1", "--output", options_.output, "--json",
                 "--force", "--skip-bad-records"}),
            0);
  const auto json = nlohmann::json::parse(out);
  EXPECT_EQ(json.at("splits").at("valid").at("documents"), 1);
  EXPECT_EQ(json.at("splits").at("train").at("dropped"), 1);
  EXPECT_EQ(json.at("hidden"), 1);
  EXPECT_EQ(json.at("left_out"), (nlohmann::json{{"no \"text\"", 1}, {"not JSON", 1}}));
  EXPECT_EQ(json.at("xxh3"), Corpus::open(options_.output)->hash());
  EXPECT_EQ(run({"prepare", "--input", folder_ / "books", "--output", options_.output}), 2);
  EXPECT_NE(errors.find("use --force"), std::string::npos) << errors;
  EXPECT_EQ(run({"prepare", "--help"}), 0);
  EXPECT_NE(out.find("quire prepare --input"), std::string::npos) << out;
}

}  // namespace
}  // namespace quire
