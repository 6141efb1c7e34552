#include "trainers/checkpoint/checkpoint.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <set>

#include "core/error.h"
#include "core/files/file_io.h"
#include "core/ranks/in_process.h"
#include "tests/support/temporary_directory.h"
#include "tests/trainers/checkpoint_example.h"

namespace quire {
namespace {

namespace fs = std::filesystem;

std::string checkpoint_error(const fs::path& path) {
  try {
    CheckpointReader::open(path);
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::checkpoint) << error.what();
    return error.what();
  }
  return "no error";
}

std::vector<std::string> names_in(const fs::path& folder) {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(folder)) names.push_back(entry.path().filename().string());
  std::sort(names.begin(), names.end());
  return names;
}

TEST(Checkpoint, RoundTrip) {
  const test::TemporaryDirectory folder;
  const fs::path path = write_example(folder / "checkpoints", 500);
  EXPECT_EQ(path, folder / "checkpoints" / "step-00000500");
  EXPECT_EQ(names_in(path),
            (std::vector<std::string>{"config.yaml", "manifest.json", "meta.json", "model.h5", "optimizer.h5",
                                      "state-00000000-00000008.h5", "state-00000000-00000008.rows"}));
  const CheckpointReader reader = CheckpointReader::open(path);
  EXPECT_EQ(reader.step(), 500);
  EXPECT_EQ(reader.parts(), (std::vector<std::string>{"model", "optimizer", "state-00000000-00000008"}));
  EXPECT_TRUE(reader.has_part("optimizer"));
  EXPECT_FALSE(reader.has_part("config.yaml"));
  EXPECT_TRUE(holds_example(reader));
  EXPECT_THROW(reader.read_part("absent"), Error);
  EXPECT_THROW(reader.open_file("absent.rows"), Error);
}

TEST(Checkpoint, ALargePartIsSeveralFiles) {
  const test::TemporaryDirectory folder;
  CheckpointPart part{"model", {}, {{"note", "text"}}};
  for (const char* name : {"c", "a", "b", "d"}) {
    part.tensors.push_back({name, Tensor::from(std::vector<float>(10, static_cast<float>(name[0])), {10})});
  }
  // Two tensors of 40 bytes to a file; then each is larger than a file should be.
  for (const auto& [limit, files] : {std::pair<int64_t, size_t>{100, 2}, {1, 4}, {1000, 1}}) {
    const fs::path path = write_checkpoint(folder.path(), limit, std::vector{part},
                                           CheckpointMeta{.step = limit, .rows = 1}.to_json(), {}, limit);
    EXPECT_EQ(names_in(path).size(), files + 2) << limit;  // manifest.json, meta.json
    const CheckpointReader reader = CheckpointReader::open(path);
    EXPECT_EQ(reader.parts(), std::vector<std::string>{"model"});
    const CheckpointPart read = reader.read_part("model");
    ASSERT_EQ(read.tensors.size(), 4U);
    EXPECT_EQ(read.texts, part.texts);
    for (size_t i = 0; i < 4; ++i) {
      EXPECT_EQ(read.tensors[i].name, std::string(1, static_cast<char>('a' + i)));
      EXPECT_EQ(read.tensors[i].tensor.to_vector<float>()[9], static_cast<float>('a' + static_cast<int>(i)));
    }
  }
}

// Earlier programs wrote how they ran matrix products: nobody asks for that any more.
TEST(Checkpoint, ChoicesOfProductsAreIgnored) {
  nlohmann::json json = CheckpointMeta{.step = 7, .tokens = 700, .rows = 8}.to_json();
  const std::string without = CheckpointMeta::from_json(json, 7, "meta.json").to_json().dump();
  json["kernels"] = "cublasLt 130000 on a GPU\n5 24 7:2 9117 0\n";
  json["timed"] = "8 rows of 512 tokens in 1 passes";
  EXPECT_EQ(CheckpointMeta::from_json(json, 7, "meta.json").to_json().dump(), without);
  EXPECT_EQ(without.find("kernels"), std::string::npos);
}

// As ranks do: each writes files of its own, and one of them the manifest of all.
TEST(Checkpoint, SeveralWritersShareAFolder) {
  const test::TemporaryDirectory folder;
  const fs::path path = folder / "step-00000007";
  fs::create_directory(path);
  CheckpointFolder first(path);
  CheckpointFolder second(path);
  const std::vector<CheckpointPart> parts = example_parts(7);
  first.write(parts[0]);
  second.write(parts[1]);
  second.write_raw(kExampleRaw, [](const auto& write) { write(example_bytes(7, 1000)); });
  first.write(parts[2]);
  first.write("meta.json", CheckpointMeta{.step = 7, .tokens = 700, .rows = 8}.to_json().dump());
  second.write("config.yaml", "run: {seed: 1}\n");
  EXPECT_EQ(first.files().size(), 3U);
  EXPECT_EQ(second.files().size(), 3U);
  std::vector<ManifestFile> files = first.files();
  files.insert(files.end(), second.files().begin(), second.files().end());
  EXPECT_EQ(files[4].name, kExampleRaw);
  EXPECT_EQ(files[4].bytes, 1000);
  EXPECT_EQ(files[4].checksum, checksum_of_file(path / kExampleRaw));
  EXPECT_NE(checkpoint_error(path).find("manifest.json: is missing"), std::string::npos);
  finish_checkpoint(path, 7, files);
  EXPECT_TRUE(holds_example(CheckpointReader::open(path)));
}

TEST(Checkpoint, RanksShareTheFilesOfAPart) {
  const test::TemporaryDirectory folder;
  CheckpointPart part{"model", {}, {{"tokenizer", "bytes"}}};
  for (int i = 0; i < 11; ++i) {
    part.tensors.push_back({std::to_string(i), Tensor::from(std::vector<double>(20, i), {20})});
  }
  const auto written = [&](int ranks) {
    const fs::path path = folder / std::to_string(ranks);
    fs::create_directory(path);
    std::map<std::string, std::string> all;
    size_t max_files = 0;
    for (int rank = 0; rank < ranks; ++rank) {
      CheckpointFolder mine(path);
      mine.write(part, 320, {rank, ranks});
      for (const ManifestFile& file : mine.files()) EXPECT_TRUE(all.emplace(file.name, file.checksum).second);
      max_files = std::max(max_files, mine.files().size());
    }
    EXPECT_EQ(max_files, static_cast<size_t>((6 + ranks - 1) / ranks));
    return all;
  };
  const auto alone = written(1);
  EXPECT_EQ(alone.size(), 6U);
  for (const int ranks : {2, 4, 9}) EXPECT_EQ(written(ranks), alone);
}

TEST(Checkpoint, DamageInAnyFileIsRefused) {
  const test::TemporaryDirectory folder;
  const fs::path path = write_example(folder.path(), 3);
  for (const std::string& name : names_in(path)) {
    const std::vector<std::byte> good = read_file(path / name);
    for (const double where : {0.0, 0.3, 0.5, 0.9}) {
      std::vector<std::byte> bad = good;
      bad[static_cast<size_t>(where * static_cast<double>(bad.size()))] ^= std::byte{0x01};
      write_file_durably(path / name, bad);
      EXPECT_NE(checkpoint_error(path).find(name), std::string::npos) << name << " " << where;
    }
    write_file_durably(path / name, std::span(good).first(good.size() / 2));
    EXPECT_NE(checkpoint_error(path).find(name), std::string::npos);
    fs::remove(path / name);
    EXPECT_EQ(checkpoint_error(path), (path / name).string() + ": is missing; use another checkpoint of the run");
    EXPECT_FALSE(latest_checkpoint(folder.path()).has_value());
    write_file_durably(path / name, good);
  }
  EXPECT_EQ(checkpoint_error(path), "no error");
}

TEST(Checkpoint, AnUnknownVersionSaysSo) {
  const test::TemporaryDirectory folder;
  const fs::path manifest = write_example(folder.path(), 3) / "manifest.json";
  std::string text = read_text_file(manifest);
  text.replace(text.find("\"version\": 1"), 12, "\"version\": 2");
  write_file_durably(manifest, text);
  EXPECT_EQ(checkpoint_error(manifest.parent_path()),
            manifest.string() + ": has version 2, this program reads 1; use a matching quire");
}

TEST(Checkpoint, LatestSkipsWhatDoesNotVerify) {
  const test::TemporaryDirectory folder;
  EXPECT_FALSE(latest_checkpoint(folder / "absent").has_value());
  EXPECT_FALSE(latest_checkpoint(folder.path()).has_value());
  write_example(folder.path(), 99999999);
  write_example(folder.path(), 100000000);
  EXPECT_EQ(latest_checkpoint(folder.path()), folder / "step-100000000");
  fs::resize_file(folder / "step-100000000/model.h5", 100);
  EXPECT_EQ(latest_checkpoint(folder.path()), folder / "step-99999999");
  fs::create_directory(folder / "step-200000000");
  fs::create_directory(folder / "step-junk");
  EXPECT_EQ(latest_checkpoint(folder.path()), folder / "step-99999999");
}

TEST(Checkpoint, ResolvesRunsFoldersAndCheckpoints) {
  const test::TemporaryDirectory folder;
  const fs::path path = write_example(folder / "checkpoints", 7);
  EXPECT_EQ(resolve_checkpoint(folder.path()), path);
  EXPECT_EQ(resolve_checkpoint(folder / "checkpoints"), path);
  EXPECT_EQ(resolve_checkpoint(path), path);
  fs::create_directory(folder / "empty");
  for (const char* name : {"empty", "absent"}) {
    try {
      resolve_checkpoint(folder / name);
      FAIL();
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::checkpoint);
      EXPECT_NE(std::string(error.what()).find("give a run or a checkpoint"), std::string::npos) << error.what();
    }
  }
}

// Each rank verifies some of the files: what one of them finds all know.
TEST(Checkpoint, RanksVerifyTogether) {
  const test::TemporaryDirectory folder;
  for (const int64_t step : {1, 2, 3}) write_example(folder / "checkpoints", step);
  for (const char* damaged : {"step-00000003/model.h5", "step-00000002/manifest.json"}) {
    std::string bytes = read_text_file(folder / "checkpoints" / damaged);
    bytes[bytes.size() / 2] ^= 1;
    write_file_durably(folder / "checkpoints" / damaged, bytes);
  }
  for (const int size : {1, 2, 3, 8}) {
    run_in_process(size, [&](Ranks& ranks) {
      EXPECT_EQ(resolve_checkpoint(folder.path(), ranks), folder / "checkpoints/step-00000001");
      EXPECT_EQ(resolve_checkpoint(folder / "checkpoints/step-00000001/", ranks), folder / "checkpoints/step-00000001");
      for (const auto& [given, error] : {std::pair{"checkpoints/step-00000003", "model.h5: is damaged"},
                                         {"checkpoints/step-00000002", "manifest.json: is damaged"},
                                         {"absent", "no such folder"}}) {
        try {
          resolve_checkpoint(folder / given, ranks);
          ADD_FAILURE() << given;
        } catch (const Error& caught) {
          EXPECT_EQ(caught.kind(), ErrorKind::checkpoint);
          EXPECT_NE(std::string(caught.what()).find(error), std::string::npos) << caught.what();
        }
      }
    });
  }
}

TEST(Checkpoint, RanksVerifyAboutAsMuchEach) {
  Manifest manifest;
  for (int i = 0; i < 40; ++i) manifest.files.push_back({std::to_string(i), 1000 + 37 * (i % 11), ""});
  std::set<std::string> names;
  for (int rank = 0; rank < 7; ++rank) {
    int64_t bytes = 0;
    for (const ManifestFile& file : manifest.share_of(rank, 7)) {
      EXPECT_TRUE(names.insert(file.name).second);
      bytes += file.bytes;
    }
    EXPECT_NEAR(static_cast<double>(bytes), 47000.0 / 7, 1200);
  }
  EXPECT_EQ(names.size(), 40U);
}

// A run that keeps one checkpoint removes it while somebody reads.
TEST(Checkpoint, OneThatVanishesGivesWayToTheNewest) {
  const test::TemporaryDirectory folder;
  const fs::path first = write_example(folder / "checkpoints", 1);
  std::vector<fs::path> used;
  use_checkpoint(folder.path(), [&](const fs::path& path) {
    used.push_back(path);
    const CheckpointReader reader = CheckpointReader::open(path);
    if (used.size() < 3) {
      write_example(folder / "checkpoints", static_cast<int64_t>(used.size()) + 1);
      keep_newest_checkpoints(folder / "checkpoints", 1);
    }
    reader.read_part("model");
  });
  EXPECT_EQ(used,
            (std::vector<fs::path>{first, folder / "checkpoints/step-00000002", folder / "checkpoints/step-00000003"}));
  // The very checkpoint that was asked for, and errors about one that is there.
  const auto uses_of = [&](const fs::path& given, bool remove) {
    int uses = 0;
    EXPECT_THROW(use_checkpoint(given,
                                [&](const fs::path& path) {
                                  ++uses;
                                  if (remove) fs::remove_all(path);
                                  throw Error(ErrorKind::checkpoint, "damaged");
                                }),
                 Error);
    return uses;
  };
  EXPECT_EQ(uses_of(folder.path(), false), 1);
  EXPECT_EQ(uses_of(used.back(), true), 1);
}

TEST(Checkpoint, KeepsTheNewest) {
  const test::TemporaryDirectory folder;
  for (const int64_t step : {1, 20, 3, 100}) write_example(folder.path(), step);
  keep_newest_checkpoints(folder.path(), 5);
  EXPECT_EQ(names_in(folder.path()).size(), 4U);
  keep_newest_checkpoints(folder.path(), 2);
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"step-00000020", "step-00000100"}));
}

// On a network file system a file that a process reads cannot be removed. The run continues, and tries again.
TEST(Checkpoint, OneThatCannotBeRemovedEndsNoRun) {
  const test::TemporaryDirectory folder;
  for (const int64_t step : {1, 2, 3}) write_example(folder.path(), step);
  write_file_durably(folder / ".step-00000001.removed", "in the way");
  EXPECT_NO_THROW(keep_newest_checkpoints(folder.path(), 1));
  EXPECT_EQ(names_in(folder.path()),
            (std::vector<std::string>{".step-00000001.removed", "step-00000001", "step-00000003"}));
  remove_unfinished_checkpoints(folder.path());
  keep_newest_checkpoints(folder.path(), 1);
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"step-00000003"}));
}

TEST(Checkpoint, TheSameStepIsReplaced) {
  const test::TemporaryDirectory folder;
  const fs::path path = write_example(folder.path(), 4);
  fs::resize_file(path / "model.h5", 10);
  write_example(folder.path(), 4);
  EXPECT_TRUE(holds_example(CheckpointReader::open(path)));
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{"step-00000004"}));
}

TEST(Checkpoint, RemainsOfCrashesAreCleared) {
  const test::TemporaryDirectory folder;
  fs::create_directories(folder / ".step-00000001.partial/x");
  fs::create_directories(folder / ".step-00000002.removed");
  fs::create_directories(folder / ".step-notes");
  write_example(folder.path(), 4);
  EXPECT_EQ(names_in(folder.path()), (std::vector<std::string>{".step-notes", "step-00000004"}));
}

}  // namespace
}  // namespace quire
