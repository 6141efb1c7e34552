#include "trainers/serve/row_reader.h"

#include <algorithm>

#include "core/check.h"
#include "layers/model/model_mechanisms.h"

namespace quire {

namespace {

// Returns runs of rows that are read together. Rows between them that read nothing cost as much as a few that do, so
// small gaps stay inside a run.
std::vector<std::pair<int64_t, int64_t>> runs_of(std::span<const RowReader::Part> parts) {
  constexpr int64_t kMaxGap = 2;
  std::vector<int64_t> rows;
  for (const RowReader::Part& part : parts) rows.push_back(part.row);
  std::sort(rows.begin(), rows.end());
  std::vector<std::pair<int64_t, int64_t>> runs;
  for (const int64_t row : rows) {
    if (!runs.empty() && row - runs.back().second <= kMaxGap) {
      runs.back().second = row + 1;
    } else {
      runs.emplace_back(row, row + 1);
    }
  }
  return runs;
}

template <typename To>
std::vector<To> values_of(const Tensor& tensor) {
  if (tensor.dtype() == DType::f64) {
    const std::vector<double> values = tensor.to_vector<double>();
    return {values.begin(), values.end()};
  }
  const std::vector<float> values = tensor.to_vector<float>();
  return {values.begin(), values.end()};
}

}  // namespace

RowReader::RowReader(LoadedModel& model, int64_t rows)
    : subsequence_(model.config().data.subsequence),
      network_(model.store(), reading_of(model.config().model, subsequence_, Purpose::generate).model,
               model.tokenizer().vocabulary_size(), model.machine().dtype),
      inserter_(network_.model.insertion(), model.tokenizer().vocabulary_size()),
      state_(network_.declared.state, rows, subsequence_, model.machine().dtype, model.machine().device,
             model.machine().scratch) {}

GetTensor RowReader::getter_of(const std::vector<NamedTensor>& counts) {
  return [&counts](const std::string& name) {
    const auto found =
        std::find_if(counts.begin(), counts.end(), [&](const NamedTensor& one) { return one.name == name; });
    if (found == counts.end()) fail(ErrorKind::checkpoint, "state of a row: has no {}", name);
    return found->tensor;
  };
}

void RowReader::put(const Part& part, Batch& batch) const {
  const int64_t first = batch.at(part.row, 0);
  const auto cell = static_cast<size_t>(first);
  const int64_t token = insertion().tokens_before(part.position);
  const auto count = static_cast<size_t>(inserter_.tokens(part.position, part.count));
  QUIRE_CHECK(count <= part.text.size(), "row reader: {} tokens of {}", count, part.text.size());
  const auto target = [&](size_t place) -> MarkedTarget {  // place in the text of a target
    if (place >= part.text.size() || token + static_cast<int64_t>(place) < part.first_scored) return {};
    return {.id = part.text[place], .counted = true};
  };
  for (size_t i = 0; i < count; ++i) {
    batch.tokens[cell + i] = part.text[i];
    set_target(batch, cell + i, target(i + 1));
  }
  inserter_.spread(batch, first, part.position, part.count, token > 0 ? target(0) : MarkedTarget{});
  for (int64_t i = 0; i < part.count; ++i) {
    const auto at = static_cast<size_t>(first + i);
    batch.target_count += batch.loss_mask[at];
    batch.segment[at] = 0;
    batch.document[at] = 0;
    batch.position[at] = static_cast<int32_t>(std::min<int64_t>(part.position + i, INT32_MAX));
  }
  batch.starts[static_cast<size_t>(part.row)] = part.position == 0 ? 1 : 0;
}

// Targets keep their order when inserted tokens come between them, so they are counted from the first scored one on.
void RowReader::list_requested(const Part& part, size_t number, const Batch& batch, int64_t first_row,
                               std::vector<Request>& requests) const {
  const int64_t first = batch.at(part.row - first_row, 0);
  const int64_t begin = insertion().tokens_before(part.position);
  const bool defers = insertion().predicts() && insertion().is_inserted(part.position) && begin > 0;
  int64_t token = std::max(part.first_scored, begin + (defers ? 0 : 1));
  for (int64_t i = 0; i < part.count; ++i) {
    if (batch.loss_mask[static_cast<size_t>(first + i)] == 0) continue;
    requests.push_back({first + i, number, token++, false, part.with_logits});
  }
  if (!part.next) return;
  requests.push_back(
      {first + part.count - 1, number, insertion().tokens_before(part.position + part.count), true, true});
}

void RowReader::read_run(const Batch& batch, int64_t begin, int64_t end, std::span<const Part> parts,
                         const std::function<void(const Score&)>& use) {
  const Batch block = batch.row_block(begin, end);
  std::vector<Request> requests;
  for (size_t i = 0; i < parts.size(); ++i) {
    if (parts[i].row >= begin && parts[i].row < end) list_requested(parts[i], i, block, begin, requests);
  }
  std::vector<int64_t> cells;  // of those with logits
  for (const Request& one : requests) {
    if (one.logits) cells.push_back(one.cell);
  }
  std::vector<double> nll;
  size_t done = 0;
  // Passes on the scores up to the next one that has logits.
  const auto pass_scores = [&] {
    for (; done < requests.size() && !requests[done].logits; ++done) {
      use({requests[done].part, requests[done].token, false, nll[static_cast<size_t>(requests[done].cell)], {}});
    }
  };
  Tape tape(false);
  const StateView view = state_.view(begin, end);
  const Forward forward{.tape = tape, .batch = block, .state = view};
  const Tensor all = network_.model.read(forward, cells, [&](const Tensor& losses, size_t, const Tensor& logits) {
    if (nll.empty() && losses.defined()) nll = values_of<double>(losses);
    const std::vector<float> values = values_of<float>(logits);
    const auto width = static_cast<size_t>(logits.dim(1));
    for (size_t at = 0; at < values.size(); at += width) {
      pass_scores();
      const Request& one = requests[done++];
      use({one.part, one.token, one.next, one.next ? 0 : nll[static_cast<size_t>(one.cell)],
           std::span(values).subspan(at, width)});
    }
  });
  if (nll.empty() && all.defined()) nll = values_of<double>(all);
  pass_scores();
}

void RowReader::read(std::span<const Part> parts, const std::function<void(const Score&)>& use) {
  if (parts.empty()) return;
  int64_t length = 0;
  for (const Part& part : parts) length = std::max(length, part.count);
  Batch batch = Batch::empty(rows(), length, 0, {.inserted = insertion().any()});
  for (const Part& part : parts) put(part, batch);
  state_.begin_step(batch);
  for (const auto& [begin, end] : runs_of(parts)) read_run(batch, begin, end, parts, use);
  state_.commit();
}

RowState RowReader::save(int64_t row) const {
  RowState saved;
  for (const NamedTensor& of_rows : state_.save_counts()) {
    Tensor own = Tensor::empty({1}, of_rows.tensor.dtype());
    own.copy_from(of_rows.tensor.slice(0, row, row + 1));
    saved.counts.push_back({of_rows.name, own});
  }
  saved.bytes.reserve(static_cast<size_t>(state_.row_bytes(row, RowExtent::readable)));
  state_.save_row(
      row, [&](std::span<const std::byte> bytes) { saved.bytes.insert(saved.bytes.end(), bytes.begin(), bytes.end()); },
      RowExtent::readable);
  return saved;
}

void RowReader::load(int64_t row, const RowState& state) {
  state_.load_counts(row, row + 1, getter_of(state.counts));
  size_t at = 0;
  const auto read = [&](std::span<std::byte> bytes) {
    if (at + bytes.size() > state.bytes.size()) {
      fail(ErrorKind::checkpoint, "state of a row: has only {} bytes", state.bytes.size());
    }
    std::copy_n(state.bytes.begin() + static_cast<std::ptrdiff_t>(at), bytes.size(), bytes.begin());
    at += bytes.size();
  };
  state_.load_row(row, read, RowExtent::readable);
}

}  // namespace quire
