// Every example that help, configs/REFERENCE.md and the pages of the folders give runs.
#include <cstdlib>
#include <regex>

#include "tests/support/compress.h"
#include "tests/support/tiny_run.h"

namespace quire::test {
namespace {

namespace fs = std::filesystem;

// Distinct words, so that a tokenizer finds enough pieces.
std::string words(uint32_t seed, int count) {
  std::string text;
  uint32_t state = seed;
  for (int i = 0; i < count; ++i) {
    for (int letters = 3 + static_cast<int>(state % 7); letters > 0; --letters) {
      state = state * 1664525U + 1013904223U;
      text += static_cast<char>('a' + (state >> 24) % 26);
    }
    text += i % 12 == 11 ? ".\n" : " ";
  }
  return text;
}

class Examples : public ::testing::Test {
 protected:
  void SetUp() override {
    for (const char* folder : {"books", "held_out"}) fs::create_directory(folder_ / folder);
    for (int i = 0; i < 12; ++i) write_text(folder_ / ("books/" + std::to_string(i) + ".txt"), words(i + 1U, 2500));
    write_text(folder_ / "held_out/a.txt", words(99, 200));
    write_text(folder_ / "book.txt", words(7, 40));
    std::string records;
    for (int i = 0; i < 4; ++i) {
      records += R"({"url": "u)" + std::to_string(i) + R"(", "text": "page )" + std::to_string(i) + "\"}\n";
    }
    write_text(folder_ / "web.jsonl.zst", zstandard(records));
    write_text(folder_ / "urls.txt", "u1\n");
    write_text(folder_ / "run.yaml", R"(run: {threads: 1}
data: {corpus: corpus.h5, subsequence: 64, rows: 1}
model: {width: 8, layers: 1, heads: 1, mlp: {kind: swiglu, hidden: 8}, position: {kind: xl}, attention: {softmax: {carry: {kind: hidden, length: 8}}},
  memory: [{kind: knn, layers: [0], carry: {length: 64}, top_k: 2, combine: joint}]}
schedule: {kind: constant, warmup: 2, steps: 500}
evaluate: {every: 0}
)");
    write_text(folder_ / "sweep.yaml", R"(config: run.yaml
set: ["schedule.steps=3"]
seeds: [1]
variants: [{name: plain}, {name: slow, set: ["optimizer.lr=1e-5"]}]
)");
  }

  ProgramResult shell(const std::string& command) const {
    const std::string path = std::string(QUIRE_BINARY_DIR) + "/bin:" + std::getenv("PATH");
    ProgramOptions options;
    options.folder = folder_ / "";
    options.environment = {{"PATH", path}};
    options.program = "/bin/sh";
    return run_quire({"-c", command}, options);
  }
  // The commands below "Example:".
  std::vector<std::string> of(const std::string& verb) const {
    const std::string help = shell("quire " + verb + " --help").out;
    const std::string heading = "Example:\n";
    std::istringstream lines(help.substr(help.find(heading) + heading.size()));
    std::vector<std::string> commands;
    bool goes_on = false;
    for (std::string line; std::getline(lines, line) && !line.empty();) {
      const bool more = line.back() == '\\';
      if (more) line.pop_back();
      goes_on ? commands.back().append(line) : commands.emplace_back(line);
      goes_on = more;
    }
    EXPECT_FALSE(commands.empty()) << help;
    return commands;
  }
  void run_all(const std::string& verb) const {
    for (const std::string& command : of(verb)) {
      const ProgramResult result = shell(command);
      EXPECT_EQ(result.code, 0) << command << "\n" << result.err;
    }
  }

  TemporaryDirectory folder_;
};

TEST_F(Examples, OfHelp) {
  run_all("tokenizer train");
  for (const std::string& command : of("prepare")) {
    if (command.find("--output corpus.h5") != std::string::npos) {
      for (const char* file : {"corpus.h5", "corpus.h5.manifest"}) fs::remove(folder_ / file);
    }
    const ProgramResult result = shell(command);
    EXPECT_EQ(result.code, 0) << command << "\n" << result.err;
  }
  fs::copy(folder_ / "corpus.h5", folder_ / "books.h5");
  fs::copy(folder_ / "corpus.h5.manifest", folder_ / "books.h5.manifest");
  for (const char* verb : {"config", "plan", "bench", "train", "eval", "generate", "needle", "trace", "inspect"})
    run_all(verb);
  const ProgramResult second = shell("quire train run.yaml optimizer.lr=1e-3 schedule.steps=4 --run-dir runs/second");
  ASSERT_EQ(second.code, 0) << second.err;
  run_all("compare");
  run_all("sweep");
  run_all("report");
}

// "as in [...]" and "for example {...}" of the reference, as the value of the key whose line has it.
TEST_F(Examples, OfTheReference) {
  const std::string page = read_text(fs::path(QUIRE_SOURCE_DIR) / "configs/REFERENCE.md");
  const std::regex example(R"(\n\| `([a-zA-Z_.]+)` \|[^\n]*?(?:as in|for example) ((\[[^\]]*\])|(\{[^}]*\})))");
  int found = 0;
  for (std::sregex_iterator at(page.begin(), page.end(), example); at != std::sregex_iterator(); ++at) {
    std::string key = (*at)[1];
    std::string value = (*at)[2];
    // A list begins with the entry that has the key.
    if (const size_t list = key.find(".N."); list != std::string::npos) {
      value = "[{" + key.substr(list + 3) + ": " + value + ", lr_scale: 0.5}]";
      key.resize(list);
    }
    const ProgramResult result = shell("quire config run.yaml --print minimal '" + key + "=" + value + "'");
    EXPECT_EQ(result.code, 0) << key << "=" << value << "\n" << result.err;
    ++found;
  }
  EXPECT_GE(found, 2);
}

// The lines of a page that begin with four spaces and "quire", in order. "$ quire" marks one that needs more than the
// documents here.
TEST_F(Examples, OfThePages) {
  for (int i = 12; i < 60; ++i) write_text(folder_ / ("books/" + std::to_string(i) + ".txt"), words(i + 1U, 300));
  std::string run = read_text(folder_ / "run.yaml");
  run.replace(run.find("steps: 500"), 10, "steps: 20");
  write_text(folder_ / "my.yaml", run);
  write_text(folder_ / "old.yaml", "model: {position: rope, attention: {window: 16}}  # of an earlier version\n");
  for (const char* name : {"README", "data/README", "data/TASKS", "data/TOKENIZERS", "configs/README",
                           "trainers/README", "trainers/RUNS", "kernels/README"}) {
    for (const char* left : {"runs", "corpus.h5", "corpus.h5.manifest"}) fs::remove_all(folder_ / left);
    if (std::string(name) != "README") shell("quire prepare --input books/ --split valid=0.2 --output corpus.h5");
    std::istringstream page(read_text(fs::path(QUIRE_SOURCE_DIR) / (std::string(name) + ".md")));
    int commands = 0;
    for (std::string line; std::getline(page, line);) {
      if (line.rfind("    quire ", 0) != 0 || line.rfind("    quire: ", 0) == 0) continue;
      if (line.find("--output corpus.h5") != std::string::npos) {
        for (const char* file : {"corpus.h5", "corpus.h5.manifest"}) fs::remove(folder_ / file);
      }
      const ProgramResult result = shell(line);
      EXPECT_EQ(result.code, 0) << name << ": " << line << "\n" << result.err;
      ++commands;
    }
    EXPECT_GE(commands, 2) << name;
  }
}

// Links to a heading name its letters, digits and hyphens, in lower case; a hyphen stands for a space.
std::set<std::string> anchors_of(const std::string& page) {
  std::set<std::string> anchors;
  std::istringstream lines(page);
  for (std::string line; std::getline(lines, line);) {
    if (!line.starts_with('#')) continue;
    std::string anchor;
    for (const char c : line.substr(std::min(line.size(), line.find(' ') + 1))) {
      if (std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == '-') {
        anchor += static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
      } else if (c == ' ') {
        anchor += '-';
      }
    }
    anchors.insert(anchor);
  }
  return anchors;
}

// The first page is read in ten minutes, the others in a quarter of an hour, and their links lead somewhere.
TEST_F(Examples, PagesAreShortAndTheirLinksHold) {
  const fs::path root = QUIRE_SOURCE_DIR;
  std::vector<fs::path> pages;
  for (const char* folder : {"configs", "data", "experiments", "kernels", "layers", "tests", "trainers"}) {
    for (const fs::directory_entry& entry : fs::recursive_directory_iterator(root / folder)) {
      if (entry.path().extension() == ".md") pages.push_back(entry.path());
    }
  }
  EXPECT_GE(pages.size(), 25U);
  const std::string first = read_text(root / "README.md");
  EXPECT_LE(first.size(), 12U << 10);
  EXPECT_LE(std::count(first.begin(), first.end(), '\n'), 180);
  pages.push_back(root / "README.md");
  const std::regex link(R"(\]\(([^)#:\s]+)(?:#([^)\s]+))?\))");
  for (const fs::path& page : pages) {
    const std::string text = read_text(page);
    const bool is_of_a_folder = page.filename() == "README.md" && page.parent_path().parent_path() == root;
    if (is_of_a_folder) {
      EXPECT_LE(text.size(), 12U << 10) << page;
    }
    for (std::sregex_iterator at(text.begin(), text.end(), link); at != std::sregex_iterator(); ++at) {
      const fs::path target = page.parent_path() / (*at)[1].str();
      ASSERT_TRUE(fs::exists(target)) << page << ": " << (*at)[1];
      if ((*at)[2].matched) {
        EXPECT_TRUE(anchors_of(read_text(target)).contains((*at)[2].str())) << page << ": " << (*at)[0];
      }
    }
  }
}

}  // namespace
}  // namespace quire::test
