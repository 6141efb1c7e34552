#include "data/corpus/corpus_manifest.h"

#include <nlohmann/json.hpp>

#include "core/check.h"
#include "core/files/file_io.h"

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
  const nlohmann::ordered_json json = {
      {"format", kCorpusFormat},   {"version", kCorpusVersion},       {"size", manifest.size},
      {"xxh3", manifest.checksum}, {"tokenizer", manifest.tokenizer}, {"vocabulary", manifest.vocabulary},
      {"splits", splits}};
  return json.dump(2) + "\n";
}

CorpusManifest read_manifest(const std::filesystem::path& corpus) {
  const std::filesystem::path path = manifest_path(corpus);
  if (!std::filesystem::exists(path)) {
    fail(ErrorKind::data,
         "{}: the corpus has no manifest, which is kept beside it: move that, too, or run quire prepare again",
         path.string());
  }
  try {
    const nlohmann::json json = nlohmann::json::parse(read_text_file(path, {.kind = ErrorKind::data}));
    if (json.at("format").get<std::string>() != kCorpusFormat) {
      fail(ErrorKind::data, "{}: not the manifest of a corpus", path.string());
    }
    if (const auto version = json.at("version").get<int64_t>(); version != kCorpusVersion) {
      fail(ErrorKind::data, "{}: format version {}, this program reads version {}; run quire prepare again",
           path.string(), version, kCorpusVersion);
    }
    CorpusManifest manifest;
    manifest.size = json.at("size").get<int64_t>();
    manifest.checksum = json.at("xxh3").get<std::string>();
    manifest.tokenizer = json.at("tokenizer").get<std::string>();
    manifest.vocabulary = json.at("vocabulary").get<int64_t>();
    for (const auto& [name, split] : json.at("splits").items()) {
      manifest.splits[name] = {.documents = split.at("documents").get<int64_t>(),
                               .tokens = split.at("tokens").get<int64_t>(),
                               .bytes = split.at("bytes").get<int64_t>(),
                               .words = split.at("words").get<int64_t>()};
    }
    return manifest;
  } catch (const nlohmann::json::exception&) {
    fail(ErrorKind::data, "{}: damaged manifest; run quire prepare again", path.string());
  }
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
