#include "data/sources/open_documents.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "core/files/file_io.h"
#include "data/sources/record_reader.h"
#include "tests/support/compress.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

struct Document {
  std::string name;
  std::string where;
  std::string text;
};

class DocumentReaderTest : public testing::Test {
 protected:
  std::vector<Document> read(const std::string& file, const std::string& content, const RecordKeys& keys = {},
                             size_t chunk = 5) const {
    write_file_durably(folder_ / file, content);
    const auto reader = open_documents(find_documents(folder_ / file).documents.at(0), keys, chunk);
    std::vector<Document> documents;
    while (reader->next_document()) {
      Document& document = documents.emplace_back();
      document.name = reader->name();
      document.where = reader->where();
      for (std::string_view piece = reader->next(); !piece.empty(); piece = reader->next()) document.text += piece;
    }
    EXPECT_EQ(reader->consumed(), static_cast<int64_t>(content.size()));
    return documents;
  }
  std::vector<Document> records(const std::string& content, const RecordKeys& keys = {}) const {
    return read("r.jsonl", content, keys);
  }

  test::TemporaryDirectory folder_;
};

TEST_F(DocumentReaderTest, TextIsReadInChunks) {
  write_file_durably(folder_ / "c.txt", "abcdefgh");
  const auto reader = open_documents(find_documents(folder_ / "c.txt").documents.at(0), {}, 3);
  EXPECT_TRUE(reader->next_document());
  EXPECT_EQ(reader->next(), "abc");
  EXPECT_EQ(reader->consumed(), 3);
  EXPECT_EQ(reader->next(), "def");
  EXPECT_EQ(reader->next(), "gh");
  EXPECT_EQ(reader->next(), "");
  EXPECT_FALSE(reader->next_document());
}

TEST_F(DocumentReaderTest, CompressedTextIsOneDocument) {
  for (const auto& [file, content] : {std::pair<std::string, std::string>{"a.b.txt.gz", test::gzipped("some\ntext")},
                                      {"a.b.txt.zst", test::zstandard("some\ntext")}}) {
    const std::vector<Document> documents = read(file, content);
    ASSERT_EQ(documents.size(), 1U);
    EXPECT_EQ(documents[0].name, "a.b");
    EXPECT_EQ(documents[0].text, "some\ntext");
  }
}

TEST_F(DocumentReaderTest, ALineIsARecord) {
  const std::string lines =
      "{\"text\": \"one\\nline\", \"id\": 1}\n\r\n  {\"id\":2,\"text\":\"caf\\u00e9 \\u0000\"}\r\n"
      "{\"text\": \"\"}\n{\"text\": \"last\"}";
  for (const auto& [file, content] : {std::pair<std::string, std::string>{"r.jsonl", lines},
                                      {"r.jsonl.gz", test::gzipped(lines)},
                                      {"r.jsonl.zst", test::zstandard(lines)}}) {
    const std::vector<Document> documents = read(file, content);
    ASSERT_EQ(documents.size(), 4U);
    EXPECT_EQ(documents[0].name, "r:1");
    EXPECT_EQ(documents[0].text, "one\nline");
    EXPECT_EQ(documents[1].name, "r:3");
    EXPECT_EQ(documents[1].text, std::string("caf\xC3\xA9 \0", 7));
    EXPECT_EQ(documents[1].where, (folder_ / file).string() + ": line 3");
    EXPECT_EQ(documents[2].text, "");
    EXPECT_EQ(documents[3].text, "last");
  }
}

TEST_F(DocumentReaderTest, KeysCanBeChosen) {
  const std::vector<Document> documents =
      records("{\"body\": \"x\", \"url\": \"a/b\"}\n{\"body\": \"y\", \"url\": 7}\n", {.text = "body", .name = "url"});
  ASSERT_EQ(documents.size(), 2U);
  EXPECT_EQ(documents[0].name, "a/b");
  EXPECT_EQ(documents[1].name, "7");
}

TEST_F(DocumentReaderTest, LongTextsComeInPieces) {
  std::string text;
  while (text.size() < 2'500'000) text += "a long text ";
  const std::vector<Document> documents = read("r.jsonl", "{\"text\": \"" + text + "\"}\n", {}, 1 << 16);
  ASSERT_EQ(documents.size(), 1U);
  EXPECT_TRUE(documents[0].text == text);
}

TEST_F(DocumentReaderTest, BadRecordsNameFileLineAndReason) {
  const std::string good = "{\"text\": \"x\"}\n\n";
  const std::pair<const char*, const char*> bad[] = {
      {"{\"text\": \"x\"", "r.jsonl: line 3: not a JSON object: column 13: syntax error"},
      {"{\"text\": \"x\"} {", "not a JSON object"},
      {"text", "not a JSON object"},
      {"[1]", "a JSON array instead of an object"},
      {"{}", "the record has no key \"text\"; --text-key names another"},
      {"{\"Text\": \"x\"}", "the record has no key \"text\""},
      {"{\"text\": null}", "\"text\" is a null instead of a string"},
      {"{\"text\": [\"x\"]}", "\"text\" is a array instead of a string"},
      {"{\"text\": \"\\ud800\"}", "not a JSON object"},         // half a surrogate pair
      {"{\"text\": \"\\udc00\\ud800\"}", "not a JSON object"},  // in the wrong order
      {"{\"text\": \"\xED\xA0\x80\"}", "ill-formed UTF-8"},     // half a pair, as bytes
      {"{\"text\": \"caf\xE9\"}", "ill-formed UTF-8"},
      {"{\"text\": \"tab\tinside\"}", "control character"},
      {"{\"text\": 1e999}", "not a JSON object"},
  };
  for (const auto& [line, message] : bad) {
    EXPECT_ERROR(records(good + line), ErrorKind::data, message);
    EXPECT_ERROR(records(fmt::format("{}{}\n{}", good, line, good)), ErrorKind::data, "r.jsonl: line 3: ");
    try {
      records(good + line);
    } catch (const Error& error) {
      EXPECT_EQ(std::string(error.what()).find_first_of("\n\t"), std::string::npos) << error.what();
    }
  }
  const RecordKeys keys{.text = "text", .name = "name"};
  EXPECT_ERROR(records("{\"text\": \"x\"}", keys), ErrorKind::data, "no key \"name\" for its name");
  for (const char* name : {"\"\"", "\"a\\nb\"", "null", "1.5", "\"a\\u0000b\""}) {
    EXPECT_ERROR(records(std::string("{\"text\": \"x\", \"name\": ") + name + "}", keys), ErrorKind::data,
                 "it has to be a number or a printable string");
  }
}

TEST_F(DocumentReaderTest, RecordsHaveALongestLength) {
  write_file_durably(folder_ / "r.jsonl", "{\"text\": \"0123456789\"}\n{\"text\": \"01234567890\"}\n");
  RecordReader reader(find_documents(folder_ / "r.jsonl").documents.at(0), {}, 4, 22);
  EXPECT_TRUE(reader.next_document());
  EXPECT_ERROR(reader.next_document(), ErrorKind::data, "line 2: the record is longer than 22 bytes");
}

TEST_F(DocumentReaderTest, BadRecordsMayBeLeftOutAndAreCounted) {
  const std::string lines =
      "\xEF\xBB\xBF{\"text\": \"first\", \"id\": 1}\n{\"text\": \"\\ud834\", \"id\": 2}\nNaN\n[1]\n\n{\"id\": 3}\n"
      "{\"text\": 7, \"id\": 4}\n{\"text\": \"x\"}\n{\"text\": \"x\", \"id\": null}\n{\"text\": \"" +
      std::string(500, 'x') + "\"}\n{\"text\": \"last\", \"id\": 5}";
  std::map<std::string, int64_t> left_out;
  write_file_durably(folder_ / "r.jsonl", lines);
  const DocumentFile file = find_documents(folder_ / "r.jsonl").documents.at(0);
  RecordReader reader(file, {.name = "id", .left_out = &left_out}, 7, 400);
  std::vector<std::string> texts;
  while (reader.next_document()) texts.push_back(reader.name() + ": " + std::string(reader.next()));
  EXPECT_EQ(texts, (std::vector<std::string>{"1: first", "5: last"}));
  EXPECT_EQ(left_out, (std::map<std::string, int64_t>{{"not JSON", 2},
                                                      {"not an object", 1},
                                                      {"no \"text\"", 1},
                                                      {"\"text\" is no string", 1},
                                                      {"no \"id\"", 1},
                                                      {"\"id\" is no name", 1},
                                                      {"too long", 1}}));
  EXPECT_EQ(describe_left_out({{"not JSON", 2}, {"too long", 1}}),
            "3 bad records were left out: 2 not JSON, 1 too long");
  for (const char* line : {"NaN", "{\"text\": \"\\ud834\"}", "[]", "{}", "{\"text\": 1}"}) {
    EXPECT_ERROR(records(line), ErrorKind::data, "; --skip-bad-records leaves such records out");
  }
}

TEST_F(DocumentReaderTest, ErrorsRepeatLittleOfALongRecord) {
  for (const std::string& line :
       {"{\"text\": " + std::string(100'000, '7') + "x}", "{\"text\": \"" + std::string(100'000, 'x') + "\x01\"}"}) {
    try {
      records(line);
      ADD_FAILURE();
    } catch (const Error& error) {
      EXPECT_LT(std::string_view(error.what()).size(), 600U) << error.what();
    }
  }
}

}  // namespace
}  // namespace quire
