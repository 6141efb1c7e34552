// Random damage to headers, indexes and config.json: an error of the right kind, never a crash, quickly and in little
// memory.
#include <fmt/format.h>
#include <sys/resource.h>

#include <chrono>
#include <cstring>
#include <random>

#include "core/error.h"
#include "tests/exchange/exchange_folder.h"
#include "trainers/exchange/import.h"
#include "trainers/exchange/safetensors.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

constexpr double kMaxSeconds = 1;
constexpr int64_t kMaxBytes = int64_t{256} << 20;

// Texts that a parser of such files meets rarely.
const char* const kWords[] = {"null",        "-1",         "1e999",    "18446744073709551616",
                              "[]",          "{}",         "\"\"",     "true",
                              "[[[[",        "\\u0000",    "\xff",     "0",
                              "1.5",         ",",          ":",        "\"a\":",
                              "99999999999", "\"F64\"",    "\"BF16\"", "\"../x\"",
                              "[0,1]",       "4294967296", "10000",    "1048576",
                              "\"yarn\"",    "\"layers\""};

std::string mutated(std::string text, std::mt19937& random, bool sized) {
  const size_t fixed = sized ? 8 : 0;  // the length of a header is damaged less often
  for (int changes = 1 + static_cast<int>(random() % 3); changes > 0 && text.size() > fixed; --changes) {
    const size_t at = sized && random() % 20 == 0 ? random() % 8 : fixed + random() % (text.size() - fixed);
    const std::string word = kWords[random() % std::size(kWords)];
    switch (random() % 6) {
      case 0:
        text[at] = static_cast<char>(text[at] ^ static_cast<char>(1 + random() % 255));
        break;
      case 1:
        text.resize(at);
        break;
      case 2:
        text.erase(at, 1 + random() % 20);
        break;
      case 3:
        text.insert(at, text.substr(fixed + random() % (text.size() - fixed), random() % 60));
        break;
      case 4:
        text.insert(at, word);
        break;
      default: {  // a whole value
        const size_t begin = text.find_first_of(":,", at);
        if (begin == std::string::npos) break;
        const size_t end = std::min(text.find_first_of(",}]", begin + 1), text.size());
        text.replace(begin + 1, end - begin - 1, word);
      }
    }
  }
  return text;
}

int64_t resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return usage.ru_maxrss * 1024;
}

class ExchangeMutation : public ::testing::Test {
 protected:
  // Imports a model some of whose files are damaged. Returns false when it was refused.
  bool imported(const std::string& damaged, const std::string& text) {
    write_all(folder_ / "model" / damaged, text);
    const fs::path run = folder_ / "run";
    fs::remove_all(run);
    const auto started = std::chrono::steady_clock::now();
    bool whole = true;
    try {
      import_model({.folder = folder_ / "model", .output = run});
    } catch (const Error& error) {
      whole = false;
      const int code = error.exit_code();
      EXPECT_TRUE(code >= 2 && code <= 4) << error.what();
      EXPECT_EQ(std::string(error.what()).find('\n'), std::string::npos) << error.what();
      EXPECT_LT(std::strlen(error.what()), 2000U) << error.what();
      EXPECT_FALSE(fs::exists(run));
    }
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - started).count();
    EXPECT_LT(seconds, kMaxSeconds) << text.substr(0, 2000);
    return whole;
  }
  void damage(const std::string& name, int rounds, uint32_t seed) {
    int refused = 0, models = 0;
    for (const fs::path& model : exchange_models()) {
      if (!fs::exists(model / name)) continue;
      ++models;
      fs::remove_all(folder_ / "model");
      link_model(model, folder_ / "model", read_all(model / "config.json"));
      const std::string whole = read_all(model / name);
      const bool sized = name.ends_with(".safetensors");
      uint64_t header = 0;
      if (sized) std::memcpy(&header, whole.data(), sizeof(header));
      const size_t length = sized ? 8 + static_cast<size_t>(header) : whole.size();
      std::mt19937 random(seed + static_cast<uint32_t>(models));
      const int64_t before = resident_bytes();
      for (int round = 0; round < rounds; ++round) {
        SCOPED_TRACE(fmt::format("{} round {}", (model / name).string(), round));
        const std::string head = mutated(whole.substr(0, length), random, sized);
        refused += imported(name, head + whole.substr(length)) ? 0 : 1;
      }
      EXPECT_LT(resident_bytes() - before, kMaxBytes);
    }
    EXPECT_GE(refused, models * rounds / 2);
  }

  TemporaryDirectory folder_{TemporaryDirectory::fast_parent()};
};

TEST_F(ExchangeMutation, OfHeaders) {
  damage("model.safetensors", 300, 1);
}
TEST_F(ExchangeMutation, OfConfigurations) {
  damage("config.json", 300, 2);
}
TEST_F(ExchangeMutation, OfIndexes) {
  damage("model.safetensors.index.json", 400, 3);
}

// Headers alone are quick to read, so there are many.
TEST_F(ExchangeMutation, OfHeadersAlone) {
  const fs::path model = exchange_models().front();
  fs::path file;
  for (const auto& entry : fs::directory_iterator(model)) {
    if (entry.path().extension() == ".safetensors") file = entry.path();
  }
  const std::string whole = read_all(file);
  uint64_t length = 0;
  std::memcpy(&length, whole.data(), sizeof(length));
  const std::string header = whole.substr(8, length);
  const auto data = static_cast<int64_t>(whole.size() - 8 - length);
  std::mt19937 random(4);
  int refused = 0;
  for (int round = 0; round < 5000; ++round) {
    const std::string damaged = mutated(header, random, false);
    try {
      read_safetensors_header(damaged, data, "file");
    } catch (const Error& error) {
      EXPECT_EQ(error.kind(), ErrorKind::data);
      ++refused;
    }
  }
  EXPECT_GT(refused, 2500);
}

// Texts that are large, not wrong.
TEST_F(ExchangeMutation, LargeTextsTakeLittleMemory) {
  const int64_t before = resident_bytes();
  fs::create_directories(folder_ / "model");
  std::string list = "{\"a\":[1";
  for (int i = 0; i < 400'000; ++i) list += ",1";
  EXPECT_FALSE(imported("config.json", list + "]}"));
  EXPECT_FALSE(imported("config.json", "{\"a\":\"" + std::string(100'000'000, 'x') + "\"}"));
  EXPECT_LT(resident_bytes() - before, kMaxBytes);
}

}  // namespace
}  // namespace quire::test
