// Reads YAML text into a ConfigNode through the events of yaml-cpp: its own tree drops duplicates and accepts much that
// a configuration must not contain.
#include <utf8.h>
#include <yaml-cpp/eventhandler.h>
#include <yaml-cpp/exceptions.h>
#include <yaml-cpp/parser.h>

#include <filesystem>
#include <span>
#include <sstream>
#include <unordered_map>

#include "core/check.h"
#include "core/config/config_node.h"
#include "core/files/file_io.h"
#include "core/files/hdf5_file.h"

namespace quire {

namespace {

// The largest depth of a tree. Trees are walked by recursion, so depth needs a limit.
constexpr size_t kDeepest = 32;

// The beginning of the second line of a saved configuration.
constexpr std::string_view kChecksum = "# quire tells by this checksum whether the file was edited: ";

class TreeBuilder : public YAML::EventHandler {
 public:
  TreeBuilder(const std::string& file, const std::string& folder) : file_(file), folder_(folder) {}

  ConfigNode take() { return std::move(root_); }
  ConfigLocation place(const YAML::Mark& mark) const {
    return {file_, folder_, std::max(mark.line, 0) + 1, std::max(mark.column, 0) + 1};
  }

  void OnDocumentStart(const YAML::Mark&) override {}
  void OnDocumentEnd() override {}
  void OnNull(const YAML::Mark& mark, YAML::anchor_t anchor) override {
    refuse_anchor(mark, anchor);
    if (expects_key()) fail(ErrorKind::config, "{}: a key is missing before ':'", place(mark).to_string());
    put({}, mark);
  }
  void OnAlias(const YAML::Mark& mark, YAML::anchor_t) override {
    fail(ErrorKind::config, "{}: YAML aliases (*name) are not supported; write the value out", place(mark).to_string());
  }
  void OnScalar(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                const std::string& value) override {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (expects_key()) {
      begin_key(mark, value);
    } else {
      put(ConfigNode::scalar(value, tag == "!"), mark);  // yaml-cpp tags quoted scalars "!" and plain ones "?"
    }
  }
  void OnSequenceStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                       YAML::EmitterStyle::value) override {
    open(ConfigNode::list(), mark, tag, anchor);
  }
  void OnSequenceEnd() override { close(); }
  void OnMapStart(const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor,
                  YAML::EmitterStyle::value) override {
    open(ConfigNode::map(), mark, tag, anchor);
  }
  void OnMapEnd() override { close(); }

 private:
  struct Open {
    ConfigNode node;
    bool has_key = false;
    std::string key;
    ConfigLocation key_location;
    std::unordered_map<std::string, size_t> places;  // index in `entries` of every key of a map
  };

  bool expects_key() const {
    return !open_.empty() && open_.back().node.kind == ConfigNode::Kind::map && !open_.back().has_key;
  }
  void begin_key(const YAML::Mark& mark, const std::string& key) {
    Open& top = open_.back();
    const auto [earlier, is_new] = top.places.emplace(key, top.node.entries.size());
    if (!is_new) {
      fail(ErrorKind::config, "{}: {}: duplicate key; first given at {}", place(mark).to_string(), full_key(key),
           top.node.entries[earlier->second].key_location.to_string());
    }
    if (key.empty()) fail(ErrorKind::config, "{}: a key is empty", place(mark).to_string());
    top.has_key = true;
    top.key = key;
    top.key_location = place(mark);
  }
  std::string full_key(const std::string& key) const {
    std::string path;
    for (size_t i = 0; i + 1 < open_.size(); ++i) {
      const bool is_list = open_[i].node.kind == ConfigNode::Kind::list;
      path = join_key(path, is_list ? std::to_string(open_[i].node.entries.size()) : open_[i].key);
    }
    return join_key(path, key);
  }
  void open(ConfigNode node, const YAML::Mark& mark, const std::string& tag, YAML::anchor_t anchor) {
    refuse_anchor(mark, anchor);
    refuse_tag(mark, tag);
    if (expects_key()) {
      fail(ErrorKind::config, "{}: a key must be text, not a list or section", place(mark).to_string());
    }
    if (open_.size() >= kDeepest) {
      fail(ErrorKind::config, "{}: sections and lists are nested more than {} deep; no configuration needs that",
           place(mark).to_string(), kDeepest);
    }
    node.location = place(mark);
    open_.push_back({std::move(node), false, {}, {}, {}});
  }
  void close() {
    ConfigNode node = std::move(open_.back().node);
    open_.pop_back();
    attach(std::move(node));
  }
  void put(ConfigNode node, const YAML::Mark& mark) {
    node.location = place(mark);
    attach(std::move(node));
  }
  void attach(ConfigNode node) {
    if (open_.empty()) {
      root_ = std::move(node);
      return;
    }
    Open& top = open_.back();
    ConfigLocation key_location = top.has_key ? top.key_location : node.location;
    // yaml-cpp gives a missing value the position of the next token, so the key's position is used.
    if (node.kind == ConfigNode::Kind::null) node.location = key_location;
    top.node.entries.push_back({top.has_key ? top.key : std::string{}, std::move(key_location), std::move(node)});
    top.has_key = false;
  }
  void refuse_anchor(const YAML::Mark& mark, YAML::anchor_t anchor) const {
    if (anchor != 0) {
      fail(ErrorKind::config, "{}: YAML anchors (&name) are not supported; write the value out",
           place(mark).to_string());
    }
  }
  void refuse_tag(const YAML::Mark& mark, const std::string& tag) const {
    if (!tag.empty() && tag != "?" && tag != "!") {
      fail(ErrorKind::config, "{}: YAML tags ({}) are not supported", place(mark).to_string(), tag);
    }
  }

  std::string file_;
  std::string folder_;
  ConfigNode root_;
  std::vector<Open> open_;
};

// Checks characters, because yaml-cpp silently replaces invalid UTF-8 and takes byte 4 for the end of the file.
void check_characters(std::string_view text, const std::string& file) {
  const auto valid = static_cast<size_t>(utf8::find_invalid(text.begin(), text.end()) - text.begin());
  int line = 1;
  int column = 1;
  for (size_t i = 0; i < text.size(); ++i) {
    const auto c = static_cast<unsigned char>(text[i]);
    const bool is_control = (c < 0x20U && c != '\n' && c != '\r' && c != '\t') || c == 0x7FU;
    if (i == valid || is_control) {
      fail(ErrorKind::config, "{}:{}:{}: {} (byte 0x{:02x})", file, line, column,
           is_control ? "control character" : "invalid UTF-8", c);
    }
    column = c == '\n' ? 1 : column + 1;
    line += c == '\n' ? 1 : 0;
  }
}

// Returns the place of the first line up to `end` that has a tab in its indentation; line 0 when there is none. YAML
// allows no such tab, and yaml-cpp then complains about something else.
ConfigLocation tab_before(std::string_view text, const ConfigLocation& end) {
  ConfigLocation place{end.file, end.folder, 1, 0};
  for (size_t begin = 0; begin < text.size() && place.line <= end.line; ++place.line) {
    const size_t line_end = std::min(text.find('\n', begin), text.size());
    const std::string_view line = text.substr(begin, line_end - begin);
    const size_t tab = line.substr(0, line.find_first_not_of(" \t")).find('\t');
    if (tab != std::string_view::npos) {
      place.column = static_cast<int>(tab) + 1;
      return place;
    }
    begin = line_end + 1;
  }
  return {};
}

}  // namespace

ConfigNode parse_yaml(std::string_view text, const std::string& file, const std::string& folder) {
  if (text.starts_with(kHdf5Signature)) {
    fail(ErrorKind::config,
         "{}: is an HDF5 file such as a corpus, not a configuration; give the YAML file of a run, in which data.corpus "
         "names the corpus",
         file);
  }
  check_characters(text, file);
  std::istringstream stream{std::string(text)};
  TreeBuilder builder(file, folder);
  try {
    YAML::Parser parser(stream);
    if (parser.HandleNextDocument(builder)) {
      TreeBuilder rest(file, folder);
      if (parser.HandleNextDocument(rest)) {
        fail(ErrorKind::config, "{}: a second YAML document; a configuration is one document", file);
      }
    }
  } catch (const YAML::Exception& error) {
    const ConfigLocation tab = tab_before(text, builder.place(error.mark));
    if (tab.line > 0) {
      fail(ErrorKind::config, "{}: a tab indents this line; YAML wants spaces", tab.to_string());
    }
    fail(ErrorKind::config, "{}: YAML: {}", builder.place(error.mark).to_string(), error.msg);
  }
  ConfigNode root = builder.take();
  if (root.kind == ConfigNode::Kind::null) {
    root = ConfigNode::map();
    root.location = {file, folder, 1, 1};
  }
  if (root.kind != ConfigNode::Kind::map) {
    fail(ErrorKind::config, "{}: expects 'key: value' lines, got {}", root.location.to_string(), root.describe());
  }
  return root;
}

std::string saved_configuration(std::string_view yaml) {
  return fmt::format("{}{}{}\n{}", kSavedConfiguration, kChecksum, checksum_of(std::as_bytes(std::span(yaml))), yaml);
}

std::string resealed(std::string_view saved_text) {
  const size_t begin = saved_text.find(kChecksum);
  if (begin == std::string_view::npos) return std::string(saved_text);
  return saved_configuration(saved_text.substr(saved_text.find('\n', begin) + 1));
}

bool was_edited(std::string_view saved_text) {
  const size_t begin = saved_text.find(kChecksum);
  if (begin == std::string_view::npos) return false;
  const size_t end = std::min(saved_text.find('\n', begin), saved_text.size());
  const size_t sum = begin + kChecksum.size();
  const std::string_view yaml = saved_text.substr(std::min(end + 1, saved_text.size()));
  return saved_text.substr(sum, end - sum) != checksum_of(std::as_bytes(std::span(yaml)));
}

ConfigNode load_yaml(const std::string& path, bool* saved) {
  constexpr int64_t kLongest = int64_t{16} << 20;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) {
    fail(ErrorKind::config, "{}: is a folder; give the YAML file", path);
  }
  std::string text = read_text_file(path, {.kind = ErrorKind::config, .max_bytes = kLongest});
  if (text.starts_with("\xEF\xBB\xBF")) text.erase(0, 3);  // a byte order mark, which some editors write
  if (saved != nullptr) *saved = text.starts_with(kSavedConfiguration);
  return parse_yaml(text, path, std::filesystem::absolute(path).parent_path().string());
}

}  // namespace quire
