#include "layers/stacks/drt_scores_file.h"

#include <algorithm>
#include <cmath>

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

std::span<const ChunkScoresFile::Entry> ChunkScoresFile::list_of(const Forward& f, int64_t row,
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
  const Document& document = found->second;
  const auto number = static_cast<size_t>(chunk.number);
  if (number >= document.ends.size()) {
    fail(ErrorKind::data, "{}: document {} has scores for {} chunks, and not for chunk {}", path_, name->second,
         document.ends.size(), chunk.number);
  }
  const int64_t begin = number == 0 ? 0 : document.ends[number - 1];
  return {document.entries.data() + begin, static_cast<size_t>(document.ends[number] - begin)};
}

GivenScores ChunkScoresFile::scores(const Forward& f, const ChunkCut& cut, const CarriedBlocks& carried,
                                    DType wide) const {
  const int64_t rows = f.batch.rows, chunks = cut.max_chunks, stored = carried.max_length;
  const Device device = f.state.device();
  GivenScores given;
  if (device == kMeta) {  // a plan reads no values
    given.of = [=](const BlockPiece& piece) { return Tensor::empty({rows, chunks, piece.size()}, wide, kMeta); };
    return given;
  }
  std::vector<std::vector<std::span<const Entry>>> lists(cut.whole.size());
  for (size_t row = 0; row < lists.size(); ++row) {
    for (const WholeChunk& chunk : cut.whole[row]) lists[row].push_back(list_of(f, static_cast<int64_t>(row), chunk));
  }
  given.names = [lists](int64_t row, int64_t i, int64_t number) {
    return std::ranges::binary_search(lists[static_cast<size_t>(row)][static_cast<size_t>(i)], number, {},
                                      &Entry::chunk);
  };
  given.of = [=, &cut, lists = std::move(lists)](const BlockPiece& piece) {
    std::vector<double> scores(static_cast<size_t>(rows * chunks * piece.size()), 0);
    for (size_t row = 0; row < lists.size(); ++row) {
      for (size_t i = 0; i < lists[row].size(); ++i) {
        const auto number = static_cast<int64_t>(i), line = static_cast<int64_t>(row) * chunks + number;
        for (const Entry& entry : lists[row][i]) {
          // The chunks of a document stand one after the other: in the subsequence, and before it in the store.
          const int64_t candidate = stored + number - (cut.whole[row][i].number - entry.chunk);
          if (candidate < piece.first || candidate >= piece.last) continue;  // perhaps it is no longer carried
          scores[static_cast<size_t>(line * piece.size() + candidate - piece.first)] = entry.score;
        }
      }
    }
    return tensor_of(scores, {rows, chunks, piece.size()}, wide, device);
  };
  return given;
}

}  // namespace quire
