#include "data/tokenizers/bpe_files.h"

#include <charconv>

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/json.h"
#include "data/tokenizers/bpe_spec_reader.h"
#include "data/tokenizers/bpe_tokenizer.h"
#include "data/tokenizers/byte_letters.h"
#include "data/tokenizers/special_names.h"

namespace quire {

namespace {

using nlohmann::ordered_json;
using FilePath = std::filesystem::path;

std::string read_tokenizer_file(const FilePath& path, const std::string& hint) {
  std::error_code ignored;
  if (!std::filesystem::exists(path, ignored)) fail(ErrorKind::data, "{}: no such file; {}", path.string(), hint);
  return read_text_file(path, {.kind = ErrorKind::data, .max_bytes = kLargestTokenizerFile});
}

void require_argument(const std::string& argument, const char* kind, const char* form) {
  if (argument.empty()) fail(ErrorKind::config, "tokenizer {}: name its file, as in {}", kind, form);
}

std::unique_ptr<Tokenizer> checked(std::unique_ptr<BpeTokenizer> tokenizer, const TokenizerOptions& options,
                                   const FilePath& path) {
  if (tokenizer->lossy() && !options.allow_lossy) {
    fail(ErrorKind::config, "{}: this tokenizer alters text: {}; accept that with --lossy-tokenizer", path.string(),
         tokenizer->alterations());
  }
  return tokenizer;
}

// Runs `make` with the path in front of the message of an error.
template <typename Make>
auto naming(const FilePath& path, const Make& make) {
  try {
    return make();
  } catch (const Error& error) {
    fail(error.kind(), "{}: {}", path.string(), error.what());
  }
}

std::unique_ptr<Tokenizer> with_names(std::string content, const FilePath& path, const FilePath& folder,
                                      const TokenizerOptions& options) {
  const SpecialNames names = read_special_names(folder);
  auto tokenizer = naming(path, [&] {
    const SpecialIds ids = resolve_special_names(names, content);
    return std::make_unique<BpeTokenizer>(std::move(content), ids.bos, ids.eos);
  });
  return checked(std::move(tokenizer), options, path);
}

// Takes the next line of a text, without its end.
std::string_view take_line(std::string_view& text) {
  const size_t end = text.find('\n');
  std::string_view line = text.substr(0, end);
  text.remove_prefix(end == std::string_view::npos ? text.size() : end + 1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

std::string json_text(std::string_view text) {
  return ordered_json(std::string(text)).dump();
}

}  // namespace

std::string byte_level_json(std::string vocab, std::string merges, const std::string& pattern, bool ignore_merges,
                            const std::vector<std::pair<int64_t, std::string>>& specials) {
  ordered_json tokens = ordered_json::array();
  for (const auto& [id, content] : specials) {
    tokens.push_back({{"id", id},
                      {"content", content},
                      {"single_word", false},
                      {"lstrip", false},
                      {"rstrip", false},
                      {"normalized", false},
                      {"special", true}});
  }
  const auto byte_level = [](bool use_regex) {
    return ordered_json{
        {"type", "ByteLevel"}, {"add_prefix_space", false}, {"trim_offsets", true}, {"use_regex", use_regex}};
  };
  ordered_json cutter = byte_level(true);
  if (!pattern.empty()) {
    const ordered_json split{
        {"type", "Split"}, {"pattern", {{"Regex", pattern}}}, {"behavior", "Isolated"}, {"invert", false}};
    cutter = {{"type", "Sequence"}, {"pretokenizers", ordered_json::array({split, byte_level(false)})}};
  }
  // The long parts are texts already.
  return fmt::format(
      "{{\"version\":\"1.0\",\"truncation\":null,\"padding\":null,\"added_tokens\":{},\"normalizer\":null,"
      "\"pre_tokenizer\":{},\"post_processor\":null,\"decoder\":{},\"model\":{{\"type\":\"BPE\",\"dropout\":null,"
      "\"unk_token\":null,\"continuing_subword_prefix\":null,\"end_of_word_suffix\":null,\"fuse_unk\":false,"
      "\"byte_fallback\":false,\"ignore_merges\":{},\"vocab\":{},\"merges\":{}}}}}\n",
      tokens.dump(), cutter.dump(), byte_level(true).dump(), ignore_merges, vocab, merges);
}

std::string json_of_merges(std::string_view vocabulary, std::string_view merges) {
  std::string reason;
  const auto vocab = parse_json<ordered_json>(vocabulary, &reason);
  if (!vocab.is_object()) fail(ErrorKind::data, "vocab.json is not a JSON object: {}", reason);
  std::string list;
  for (bool first = true; !merges.empty(); first = false) {
    const std::string_view line = take_line(merges);
    if (line.empty() || (first && line.starts_with("#version"))) continue;
    const size_t space = line.find(' ');
    if (space == std::string_view::npos || space == 0 || space + 1 == line.size() ||
        line.find(' ', space + 1) != std::string_view::npos) {
      fail(ErrorKind::data, "merges.txt: \"{}\" is not a pair of tokens", line);
    }
    list += list.empty() ? "" : ",";
    try {
      list += fmt::format("[{},{}]", json_text(line.substr(0, space)), json_text(line.substr(space + 1)));
    } catch (const ordered_json::exception&) {
      fail(ErrorKind::data, "merges.txt: \"{}\" is not UTF-8", line);
    }
  }
  return byte_level_json(vocab.dump(), fmt::format("[{}]", list), "", false, {});
}

std::unique_ptr<Tokenizer> tokenizer_from_json(const std::string& argument, const TokenizerOptions& options) {
  require_argument(argument, "hf", "hf:FOLDER or hf:FOLDER/tokenizer.json");
  FilePath path = argument;
  std::error_code ignored;
  if (std::filesystem::is_directory(path, ignored)) path /= "tokenizer.json";
  std::string content = read_tokenizer_file(path, "hf: takes a tokenizer.json or its folder");
  return with_names(std::move(content), path, path.parent_path(), options);
}

std::unique_ptr<Tokenizer> tokenizer_from_merges(const std::string& argument, const TokenizerOptions& options) {
  require_argument(argument, "bpe", "bpe:FOLDER, which has vocab.json and merges.txt");
  const FilePath folder = argument;
  const char* hint = "bpe: takes a folder with vocab.json and merges.txt";
  const std::string vocabulary = read_tokenizer_file(folder / "vocab.json", hint);
  const std::string merges = read_tokenizer_file(folder / "merges.txt", hint);
  std::string content = naming(folder, [&] { return json_of_merges(vocabulary, merges); });
  return with_names(std::move(content), folder, folder, options);
}

std::unique_ptr<Tokenizer> tokenizer_from_ranks(const std::string& argument, const TokenizerOptions& options) {
  require_argument(argument, "tiktoken", "tiktoken:tokenizer.model");
  const FilePath path = argument;
  const std::string lines = read_tokenizer_file(path, "tiktoken: takes a file of lines \"BASE64 RANK\"");
  auto tokenizer = naming(path, [&] {
    std::string content = json_of_ranks(lines);
    const auto ids = static_cast<int32_t>(read_bpe_spec(content).vocabulary);
    return std::make_unique<BpeTokenizer>(std::move(content), ids - 2, ids - 1);
  });
  return checked(std::move(tokenizer), options, path);
}

}  // namespace quire
