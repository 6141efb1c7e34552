#include "data/sources/document_source.h"

#include <gtest/gtest.h>

#include "core/files/file_io.h"
#include "tests/support/expect_error.h"
#include "tests/support/temporary_directory.h"

namespace quire {
namespace {

using test::TemporaryDirectory;

TEST(DocumentSource, FindsTextFilesBelowAFolderInOneOrder) {
  const TemporaryDirectory folder;
  std::filesystem::create_directories(folder / "b/deep");
  write_file_durably(folder / "c.txt", "ccc");
  write_file_durably(folder / "b/deep/x.y.txt", "x");
  write_file_durably(folder / "a.TXT", "");
  write_file_durably(folder / "readme.md", "no");
  write_file_durably(folder / "d.txt.gz", "");
  write_file_durably(folder / "e.jsonl", "");
  write_file_durably(folder / "f.g.JSONL.zst", "");
  write_file_durably(folder / "no.gz", "");
  write_file_durably(folder / "noextension", "no");
  const DocumentList list = find_documents(folder.path());
  ASSERT_EQ(list.documents.size(), 6U);
  EXPECT_EQ(list.documents[0].name, "a");
  EXPECT_EQ(list.documents[1].name, "b/deep/x.y");
  EXPECT_EQ(list.documents[2].name, "c");
  EXPECT_EQ(list.documents[2].bytes, 3);
  EXPECT_EQ(list.documents[2].format, FileFormat::text);
  EXPECT_EQ(list.documents[3].name, "d");
  EXPECT_EQ(list.documents[3].format, FileFormat::text);
  EXPECT_EQ(list.documents[4].name, "e");
  EXPECT_EQ(list.documents[4].format, FileFormat::records);
  EXPECT_EQ(list.documents[5].name, "f.g");
  EXPECT_EQ(list.documents[5].format, FileFormat::records);
  EXPECT_EQ(list.ignored, 3);
  // A slash at the end changes nothing.
  EXPECT_EQ(find_documents(folder / "b/").documents.front().name, "deep/x.y");
}

// Systems and programs leave hidden files beside documents. A hidden file that is named is read.
TEST(DocumentSource, HiddenFilesAndFoldersAreLeftOutAndCounted) {
  const TemporaryDirectory folder;
  std::filesystem::create_directories(folder / "b/.ipynb_checkpoints/deep");
  write_file_durably(folder / "b/x.txt", "x");
  write_file_durably(folder / "b/._x.txt", "x");
  write_file_durably(folder / "b/.x.md", "x");
  write_file_durably(folder / "b/.ipynb_checkpoints/x-checkpoint.txt", "x");
  write_file_durably(folder / "b/.ipynb_checkpoints/deep/y.txt", "y");
  const DocumentList list = find_documents(folder.path());
  ASSERT_EQ(list.documents.size(), 1U);
  EXPECT_EQ(list.documents[0].name, "b/x");
  EXPECT_EQ(list.ignored, 0);
  EXPECT_EQ(list.hidden, 3);
  EXPECT_EQ(find_documents(folder / "b/._x.txt").documents.size(), 1U);
  EXPECT_EQ(find_documents(folder / "b/.ipynb_checkpoints").documents.size(), 2U);
  std::filesystem::remove(folder / "b/x.txt");
  EXPECT_ERROR(find_documents(folder.path()), ErrorKind::data, "but 0 files of other kinds and 3 that are hidden");
}

TEST(DocumentSource, OneFileIsOneDocument) {
  const TemporaryDirectory folder;
  write_file_durably(folder / "c.txt", "ccc");
  const DocumentList list = find_documents(folder / "c.txt");
  ASSERT_EQ(list.documents.size(), 1U);
  EXPECT_EQ(list.documents[0].name, "c");
}

TEST(DocumentSource, NothingFoundIsAnError) {
  const TemporaryDirectory folder;
  EXPECT_ERROR(find_documents(folder.path()), ErrorKind::data, "no document in this folder");
  EXPECT_ERROR(find_documents(folder / "none"), ErrorKind::data, "none: no such file or folder");
  write_file_durably(folder / "x.pdf", "x");
  EXPECT_ERROR(find_documents(folder / "x.pdf"), ErrorKind::data,
               "x.pdf: neither a document nor a folder of them; documents are .txt, .jsonl");
  EXPECT_ERROR(find_documents(folder.path()), ErrorKind::data, "but 1 files of other kinds");
}

}  // namespace
}  // namespace quire
