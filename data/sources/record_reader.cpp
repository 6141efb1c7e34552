#include "data/sources/record_reader.h"

#include <algorithm>

#include "core/check.h"
#include "core/json.h"
#include "data/sources/open_byte_source.h"
#include "data/sources/utf8.h"

namespace quire {

namespace {

// Shortens "[json.exception.parse_error.101] parse error at line 1, column 8: REASON"; the line is always 1 here.
std::string without_line(const std::string& reason) {
  const size_t column = reason.find("column ");
  return shortened(column == std::string::npos ? reason : reason.substr(column));
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// Returns whether a name can be a line of a list and a cell of a table.
bool is_printable(std::string_view name) {
  return !name.empty() && std::all_of(name.begin(), name.end(),
                                      [](char c) { return static_cast<unsigned char>(c) >= 0x20 && c != 0x7F; });
}

}  // namespace

RecordReader::RecordReader(const DocumentFile& file, RecordKeys keys, size_t chunk, size_t longest)
    : file_name_(file.name),
      path_(file.path.string()),
      keys_(std::move(keys)),
      source_(open_byte_source(file.path)),
      buffer_(chunk, '\0'),
      longest_(longest) {}

std::string RecordReader::where() const {
  return fmt::format("{}: line {}", path_, line_number_);
}

bool RecordReader::refuse(const std::string& kind, const std::string& what) const {
  if (keys_.left_out == nullptr) {
    fail(ErrorKind::data, "{}: {}; --skip-bad-records leaves such records out", where(), what.c_str());
  }
  ++(*keys_.left_out)[kind];
  return false;
}

bool RecordReader::next_line() {
  line_.clear();
  ++line_number_;
  bool too_long = false;
  for (bool any = false;; any = true) {
    if (used_ == filled_) {
      used_ = 0;
      filled_ = source_->read(buffer_);
      if (filled_ == 0) return any;
    }
    const std::string_view rest = std::string_view(buffer_).substr(used_, filled_ - used_);
    const size_t end = rest.find('\n');
    const std::string_view part = rest.substr(0, end);
    if (!too_long && line_.size() + part.size() > longest_) {
      too_long = true;
      line_.clear();
      refuse("too long", fmt::format("the record is longer than {} bytes; make long documents .txt files", longest_));
    }
    if (!too_long) line_ += part;
    used_ += part.size();
    if (end == std::string_view::npos) continue;
    ++used_;
    if (line_number_ == 1 && line_.starts_with(kByteOrderMark)) line_.erase(0, kByteOrderMark.size());
    return true;
  }
}

bool RecordReader::parse() {
  std::string reason;
  nlohmann::json record = parse_json(line_, &reason);
  if (record.is_discarded()) return refuse("not JSON", "not a JSON object: " + without_line(reason));
  if (!record.is_object()) {
    return refuse("not an object", fmt::format("a JSON {} instead of an object", record.type_name()));
  }
  const std::string key = shortened(keys_.text);
  const auto text = record.find(keys_.text);
  if (text == record.end()) {
    return refuse(fmt::format("no \"{}\"", key),
                  fmt::format("the record has no key \"{}\"; --text-key names another", key));
  }
  if (!text->is_string()) {
    return refuse(fmt::format("\"{}\" is no string", key),
                  fmt::format("\"{}\" is a {} instead of a string", key, text->type_name()));
  }
  name_ = fmt::format("{}:{}", file_name_, line_number_);
  if (keys_.name) {
    const std::string name_key = shortened(*keys_.name);
    const auto name = record.find(*keys_.name);
    if (name == record.end()) {
      return refuse(fmt::format("no \"{}\"", name_key),
                    fmt::format("the record has no key \"{}\" for its name", name_key));
    }
    if (name->is_number_integer()) {
      name_ = name->dump();
    } else if (name->is_string() && is_printable(name->get_ref<const std::string&>())) {
      name_ = name->get<std::string>();
    } else {
      return refuse(fmt::format("\"{}\" is no name", name_key),
                    fmt::format("\"{}\" is no name: it has to be a number or a printable string", name_key));
    }
  }
  text_ = std::move(text->get_ref<std::string&>());
  given_ = 0;
  return true;
}

bool RecordReader::next_document() {
  do {
    if (!next_line()) return false;
  } while (is_blank(line_) || !parse());
  return true;
}

std::string_view RecordReader::next() {
  const std::string_view piece = std::string_view(text_).substr(given_, kChunk);
  given_ += piece.size();
  return piece;
}

}  // namespace quire
