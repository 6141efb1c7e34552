#include "data/corpus/corpus_manifest.h"

#include "core/check.h"
#include "core/files/file_io.h"
#include "core/json.h"

namespace quire {

std::filesystem::path manifest_path(const std::filesystem::path& corpus) {
  return with_suffix(corpus, ".manifest");
}

std::string manifest_to_json(const CorpusManifest& manifest) {
  nlohmann::ordered_json splits = nlohmann::ordered_json::object();
  for (const auto& [name, totals] : manifest.splits) {
    splits[name] = {
        {"documents", totals.documents}, {"tokens", totals.tokens}, {"bytes", totals.bytes}, {"words", totals.words}};
  }
  nlohmann::ordered_json json = {
      {"format", kCorpusFormat},   {"version", kCorpusVersion},       {"size", manifest.size},
      {"xxh3", manifest.checksum}, {"tokenizer", manifest.tokenizer}, {"vocabulary", manifest.vocabulary},
      {"splits", splits}};
  if (!manifest.left_out.empty()) json["left_out"] = manifest.left_out;
  return json.dump(2) + "\n";
}

namespace {

CorpusManifest read_manifest_file(const std::filesystem::path& path) {
  try {
    const nlohmann::json json = parse_json(read_text_file(path, {.kind = ErrorKind::data}));
    if (json.at("format").get<std::string>() != kCorpusFormat) {
      fail(ErrorKind::data, "{}: not the manifest of a corpus", path.string());
    }
    if (const auto version = json_integer(json.at("version")); version != kCorpusVersion) {
      fail(ErrorKind::data, "{}: format version {}, this program reads version {}; run quire prepare again",
           path.string(), version, kCorpusVersion);
    }
    CorpusManifest manifest;
    manifest.size = json_integer(json.at("size"));
    manifest.checksum = json.at("xxh3").get<std::string>();
    manifest.tokenizer = json.at("tokenizer").get<std::string>();
    manifest.vocabulary = json_integer(json.at("vocabulary"));
    for (const auto& [name, split] : json.at("splits").items()) {
      manifest.splits[name] = {.documents = json_integer(split.at("documents")),
                               .tokens = json_integer(split.at("tokens")),
                               .bytes = json_integer(split.at("bytes")),
                               .words = json_integer(split.at("words"))};
    }
    if (json.contains("left_out")) {
      for (const auto& [what, count] : json.at("left_out").items()) manifest.left_out[what] = json_integer(count);
    }
    return manifest;
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::data, "{}: damaged manifest; run quire prepare again", path.string());
  }
}

}  // namespace

CorpusManifest read_manifest(const std::filesystem::path& corpus) {
  const std::filesystem::path path = manifest_path(corpus);
  if (!std::filesystem::exists(path)) {
    fail(ErrorKind::data,
         "{}: the corpus has no manifest, which is kept beside it: move that, too, or run quire prepare again",
         path.string());
  }
  return read_manifest_file(path);
}

void finish_interrupted_corpus(const std::filesystem::path& corpus) {
  const std::filesystem::path manifest = manifest_path(corpus);
  const std::filesystem::path unfinished = with_suffix(manifest, ".partial");
  std::error_code error;
  // Nothing to do: the corpus itself still has its other name, or was never written.
  if (!std::filesystem::is_regular_file(unfinished, error) ||
      std::filesystem::exists(with_suffix(corpus, ".partial"), error) ||
      !std::filesystem::is_regular_file(corpus, error)) {
    return;
  }
  try {
    File file = File::open(corpus, ErrorKind::data);
    verify_against_manifest(file, read_manifest_file(unfinished));
  } catch (const Error&) {
    return;  // not a manifest, or an incomplete one
  }
  std::filesystem::rename(unfinished, manifest, error);
  if (!error || !std::filesystem::exists(unfinished)) return;  // another process may have renamed it first
  fail(ErrorKind::data, "{}: quire prepare was killed before it renamed this to {}; that fails now: {}; rename it",
       unfinished.string(), manifest.string(), error.message());
}

void require_size(const File& corpus, const CorpusManifest& manifest) {
  if (const int64_t size = corpus.size(); size != manifest.size) {
    fail(ErrorKind::data, "{}: {} bytes, but its manifest says {}: truncated or replaced; run quire prepare again",
         corpus.path().string(), size, manifest.size);
  }
}

void verify_against_manifest(File& corpus, const CorpusManifest& manifest) {
  require_size(corpus, manifest);
  if (const std::string checksum = checksum_of_file(corpus); checksum != manifest.checksum) {
    fail(ErrorKind::data, "{}: checksum {}, but its manifest says {}: damaged; run quire prepare again",
         corpus.path().string(), checksum, manifest.checksum);
  }
}

}  // namespace quire
