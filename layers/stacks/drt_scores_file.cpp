#include "layers/stacks/drt_scores_file.h"

#include <algorithm>
#include <cmath>
#include <span>

#include "core/check.h"
#include "core/files/file.h"
#include "core/json.h"
#include "layers/pass/host_values.h"

namespace quire {

namespace {

constexpr size_t kLongestLine = size_t{1} << 20;

}  // namespace

ChunkScoresFile::ChunkScoresFile(const std::string& path) : path_(path) {
  const File file = File::open(path, ErrorKind::config);
  const MappedFile mapped(file);
  std::string_view rest(reinterpret_cast<const char*>(mapped.bytes().data()), mapped.bytes().size());
  for (int64_t number = 1; !rest.empty(); ++number) {
    const size_t length = std::min(rest.find('\n'), rest.size());
    const std::string_view line = rest.substr(0, length);
    rest.remove_prefix(std::min(length + 1, rest.size()));
    if (line.find_first_not_of(" \t\r") == std::string_view::npos) continue;
    try {
      if (line.size() > kLongestLine) fail(ErrorKind::data, "a line of more than 1 MiB");
      add_line(line);
    } catch (const Error& error) {
      fail(ErrorKind::data, "{}:{}: {}", path, number, error.what());
    } catch (const nlohmann::json::exception&) {
      fail(ErrorKind::data,
           "{}:{}: not of the form {{\"document\": NAME, \"chunk\": N, \"indices\": [...], \"scores\": [...]}}", path,
           number);
    }
  }
  if (documents_.empty()) fail(ErrorKind::data, "{}: there are no scores in it", path);
}

void ChunkScoresFile::add_line(std::string_view text) {
  const nlohmann::json line = parse_json(text);
  const auto chunk = json_integer(line.at("chunk"));
  const auto& indices = line.at("indices");
  const auto& scores = line.at("scores");
  if (line.size() != 4 || !indices.is_array() || !scores.is_array() || indices.size() != scores.size()) {
    fail(ErrorKind::data, "a line has document, chunk, and as many indices as scores, and nothing else");
  }
  const auto& name = line.at("document").get_ref<const std::string&>();
  Document& document = documents_[name];
  const auto expected = static_cast<int64_t>(document.ends.size());
  if (chunk != expected) {
    fail(ErrorKind::data, "chunk {} of document {}, where chunk {} comes next", chunk, name, expected);
  }
  const size_t begin = document.entries.size();
  for (size_t k = 0; k < indices.size(); ++k) {
    const int64_t index = json_integer(indices[k], -1);
    const auto score = scores[k].is_number() ? scores[k].get<float>() : NAN;
    if (index < 0) continue;
    if (index >= chunk) fail(ErrorKind::data, "chunk {} asks for chunk {}, which is none before it", chunk, index);
    if (!std::isfinite(score)) fail(ErrorKind::data, "the score of chunk {} is no finite number", index);
    document.entries.push_back({static_cast<int32_t>(index), score});
  }
  const std::span list = std::span(document.entries).subspan(begin);
  std::ranges::sort(list, {}, &Entry::chunk);
  const auto twice = std::ranges::adjacent_find(list, {}, &Entry::chunk);
  if (twice != list.end()) fail(ErrorKind::data, "chunk {} is named twice", twice->chunk);
  document.ends.push_back(static_cast<int64_t>(document.entries.size()));
}

const ChunkScoresFile::Document& ChunkScoresFile::document_of(const Forward& f, int64_t row,
                                                              const WholeChunk& chunk) const {
  const int64_t index = f.batch.document[static_cast<size_t>(f.batch.at(row, chunk.mark))];
  const auto name = f.batch.names.find(index);
  if (name == f.batch.names.end()) {
    fail(ErrorKind::config,
         "model.stack.drt.scores: file: prompts and generated documents have no name by which {} could know them; read "
         "documents of a corpus",
         path_);
  }
  const auto found = documents_.find(name->second);
  if (found == documents_.end()) fail(ErrorKind::data, "{}: there are no scores of document {}", path_, name->second);
  if (chunk.number >= static_cast<int64_t>(found->second.ends.size())) {
    fail(ErrorKind::data, "{}: document {} has scores for {} chunks, and not for chunk {}", path_, name->second,
         found->second.ends.size(), chunk.number);
  }
  return found->second;
}

std::pair<Tensor, std::vector<uint8_t>> ChunkScoresFile::scores(const Forward& f, const ChunkCut& cut,
                                                                const CarriedBlocks& carried, DType wide) const {
  const int64_t rows = f.batch.rows, chunks = cut.max_chunks, stored = carried.max_length, all = stored + chunks;
  const Shape shape{rows, chunks, all};
  if (f.state.device() == kMeta) return {Tensor::empty(shape, wide, kMeta), {}};  // a plan reads no values
  const auto cells = static_cast<size_t>(shape.numel());
  std::vector<double> scores(cells, 0);
  std::vector<uint8_t> named(cells, 0);
  for (int64_t row = 0; row < rows; ++row) {
    const std::vector<WholeChunk>& whole = cut.whole[static_cast<size_t>(row)];
    for (size_t i = 0; i < whole.size(); ++i) {
      const Document& document = document_of(f, row, whole[i]);
      const auto number = static_cast<size_t>(whole[i].number);
      for (int64_t k = number == 0 ? 0 : document.ends[number - 1]; k < document.ends[number]; ++k) {
        const Entry entry = document.entries[static_cast<size_t>(k)];
        // The chunks of a document stand one after the other: in the subsequence, and before it in the store.
        const int64_t candidate = stored + static_cast<int64_t>(i) - (whole[i].number - entry.chunk);
        const bool in_store =
            whole[i].carried && candidate < stored && candidate >= stored - carried.length[static_cast<size_t>(row)];
        const bool in_pass =
            candidate >= stored && whole[static_cast<size_t>(candidate - stored)].segment == whole[i].segment;
        if (!in_store && !in_pass) continue;  // it is no longer carried
        const auto cell = static_cast<size_t>((row * chunks + static_cast<int64_t>(i)) * all + candidate);
        scores[cell] = entry.score;
        named[cell] = 1;
      }
    }
  }
  return {tensor_of(scores, shape, wide, f.state.device()), std::move(named)};
}

}  // namespace quire
