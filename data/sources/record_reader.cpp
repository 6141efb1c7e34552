#include "data/sources/record_reader.h"

#include <algorithm>
#include <nlohmann/json.hpp>

#include "core/check.h"
#include "data/sources/open_byte_source.h"

namespace quire {

namespace {

// "[json.exception.parse_error.101] parse error at line 1, column 8: REASON": the line is always 1 here.
std::string reason_of(const nlohmann::json::parse_error& error) {
  std::string text = error.what();
  const size_t column = text.find("column ");
  return column == std::string::npos ? text : text.substr(column);
}

bool is_blank(std::string_view line) {
  return line.find_first_not_of(" \t\r") == std::string_view::npos;
}

// Names are lines of lists and of tables.
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

void RecordReader::fail_record(const std::string& what) const {
  std::string line = where() + ": " + what;
  // Parts of the file may be in it.
  std::replace_if(
      line.begin(), line.end(), [](char c) { return static_cast<unsigned char>(c) < 0x20; }, ' ');
  fail(ErrorKind::data, "{}", line);
}

bool RecordReader::next_line() {
  line_.clear();
  ++line_number_;
  for (bool any = false;; any = true) {
    if (used_ == held_) {
      used_ = 0;
      held_ = source_->read(buffer_);
      if (held_ == 0) return any;
    }
    const std::string_view rest = std::string_view(buffer_).substr(used_, held_ - used_);
    const size_t end = rest.find('\n');
    const std::string_view part = rest.substr(0, end);
    if (line_.size() + part.size() > longest_) {
      fail_record(fmt::format("the record is longer than {} bytes; make long documents .txt files", longest_));
    }
    line_ += part;
    used_ += part.size();
    if (end == std::string_view::npos) continue;
    ++used_;
    return true;
  }
}

void RecordReader::parse() {
  using nlohmann::json;
  json record;
  try {
    record = json::parse(line_);
  } catch (const json::parse_error& error) {
    fail_record("not a JSON object: " + reason_of(error));
  } catch (const json::exception& error) {  // a number that is too large
    fail_record(std::string("not a JSON object: ") + error.what());
  }
  if (!record.is_object()) fail_record(fmt::format("a JSON {} instead of an object", record.type_name()));
  const auto text = record.find(keys_.text);
  if (text == record.end()) {
    fail_record(fmt::format("the record has no key \"{}\"; --text-key names another", keys_.text));
  }
  if (!text->is_string()) {
    fail_record(fmt::format("\"{}\" is a {} instead of a string", keys_.text, text->type_name()));
  }
  text_ = std::move(text->get_ref<std::string&>());
  given_ = 0;
  name_ = fmt::format("{}:{}", file_name_, line_number_);
  if (!keys_.name) return;
  const auto name = record.find(*keys_.name);
  if (name == record.end()) fail_record(fmt::format("the record has no key \"{}\" for its name", *keys_.name));
  if (name->is_number_integer()) {
    name_ = name->dump();
  } else if (name->is_string() && is_printable(name->get_ref<const std::string&>())) {
    name_ = name->get<std::string>();
  } else {
    fail_record(fmt::format("\"{}\" is no name: it has to be a number or a printable string", *keys_.name));
  }
}

bool RecordReader::next_document() {
  do {
    if (!next_line()) return false;
  } while (is_blank(line_));
  parse();
  return true;
}

std::string_view RecordReader::next() {
  const std::string_view piece = std::string_view(text_).substr(given_, kChunk);
  given_ += piece.size();
  return piece;
}

}  // namespace quire
