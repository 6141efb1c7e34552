#include "layers/mixers/block_report.h"

#include <bit>
#include <cmath>
#include <map>
#include <set>

#include "kernels/elementwise.h"
#include "layers/pass/host_values.h"

namespace quire {

namespace {

// Holds the places of a pass on the host.
class Places {
 public:
  Places(const Forward& f, int64_t period, const BlockLog* store, const CarriedBlocks& carried, const KeyBlocks& blocks)
      : period_(period),
        carried_(carried),
        first_(blocks.first_on_host.to_vector<int32_t>()),
        slots_(store == nullptr ? 0 : store->slots(f.state)),
        begins_(f.batch.segment.size(), 0) {
    if (store != nullptr) head_ = store->head(f.state).to_vector<int32_t>();
    for (const Segment& segment : f.state.segments()) {
      const auto cell = static_cast<size_t>(f.batch.at(segment.row, segment.begin));
      std::fill_n(begins_.begin() + static_cast<std::ptrdiff_t>(cell), segment.count, f.batch.position[cell]);
    }
  }

  // Returns the number, in its document, of a stored block or of a block of the pass.
  int64_t stored(int64_t row, int32_t slot) const {
    const auto r = static_cast<size_t>(row);
    const int64_t age = (slot - row * slots_ - head_[r] + carried_.length[r] + 2 * slots_) % slots_;
    return carried_.written[r] - carried_.length[r] + age;
  }
  int64_t of_pass(int64_t cell, int32_t block) const {
    return begin(cell) / period_ + block - first_[static_cast<size_t>(cell)];
  }
  // Returns where the query's part of the document begins in this pass.
  int64_t begin(int64_t cell) const { return begins_[static_cast<size_t>(cell)]; }

 private:
  int64_t period_;
  const CarriedBlocks& carried_;
  std::vector<int32_t> first_;
  int64_t slots_;
  std::vector<int32_t> begins_;
  std::vector<int32_t> head_;
};

// Blocks that a query reads, and the logs of their sums.
struct Span {
  int64_t begin, end;
  double lse;
};

void add_telemetry(const Forward& f, const std::string& name, const CarriedBlocks& carried,
                   const std::set<std::pair<int64_t, int64_t>>& different, const std::map<int64_t, double>& back) {
  const auto rows = static_cast<double>(f.batch.rows);
  double stored = 0;
  for (const int64_t length : carried.length) stored += static_cast<double>(length) / rows;
  f.add_telemetry(name + ".stored", stored);
  f.add_telemetry(name + ".different", static_cast<double>(different.size()) / rows);
  double all = 0;
  for (const auto& [distance, weight] : back) all += weight;
  for (const auto& [distance, weight] : back) {
    f.add_telemetry(name + ".back." + std::to_string(distance), weight / all);
  }
}

}  // namespace

Tensor one_of(const Tensor& chosen, int64_t n) {
  const Tensor one = Tensor::empty({chosen.dim(0), chosen.dim(1), chosen.dim(2), 1}, DType::i32, chosen.device());
  ops::copy(one, chosen.slice(3, n, n + 1));
  return one;
}

std::vector<BlockRead> stored_reads(const Tensor& mass, const Tensor& slot) {
  std::vector<BlockRead> reads;
  for (int64_t n = 0; n < slot.dim(3); ++n) {
    const Tensor of_one = Tensor::empty({mass.dim(0), mass.dim(1), mass.dim(2)}, mass.dtype(), mass.device());
    ops::copy(of_one, mass.select(3, n));
    reads.push_back({of_one, one_of(slot, n), {}});
  }
  return reads;
}

void report_blocks(const Forward& f, const std::string& name, int64_t period, const BlockLog* store,
                   const CarriedBlocks& carried, const KeyBlocks& blocks, const std::vector<BlockRead>& reads,
                   const GateSum& whole) {
  if (!f.wants_telemetry() && !f.wants_retrievals()) return;
  if (reads.empty()) {
    if (f.wants_telemetry()) add_telemetry(f, name, carried, {}, {});
    return;
  }
  const Places places(f, period, store, carried, blocks);
  const Tensor& some = reads.front().lse;
  const int64_t heads = some.dim(1), tokens = some.dim(2);
  std::vector<std::vector<double>> sums;
  std::vector<std::vector<int32_t>> numbers;
  for (const BlockRead& read : reads) {
    sums.push_back(values_on_host(read.lse));
    numbers.push_back((read.slot.defined() ? read.slot : read.block).to_vector<int32_t>());
  }
  const std::vector<double> of_all = values_on_host(whole.lse);
  const std::vector<double> shares = whole.share.defined() ? values_on_host(whole.share) : std::vector<double>();
  std::set<std::pair<int64_t, int64_t>> different;  // row, number of a stored block
  std::map<int64_t, double> back;
  for (int64_t query = 0; query < f.batch.rows * tokens * heads; ++query) {
    const int64_t cell = query / heads, row = cell / tokens, head = query % heads;
    if (!f.batch.has_token(cell)) continue;
    std::vector<Span> spans;
    const auto line = static_cast<size_t>((row * heads + head) * tokens + cell % tokens);
    double max_lse = -INFINITY;
    for (size_t n = 0; n < reads.size(); ++n) {
      const int32_t which = numbers[n][static_cast<size_t>(query)];
      if (which < 0) continue;
      const bool is_stored = reads[n].slot.defined();
      const int64_t number = is_stored ? places.stored(row, which) : places.of_pass(cell, which);
      if (is_stored) different.insert({row, number});
      const int64_t begin = is_stored
                                ? number * period
                                : std::max(number * period, std::min(places.begin(cell), (number + 1) * period - 1));
      spans.push_back({begin, (number + 1) * period, sums[n][line]});
      max_lse = std::max(max_lse, spans.back().lse);
    }
    double sum = 0;
    for (const Span& span : spans) sum += std::exp(span.lse - max_lse);
    const double retrieved =
        (shares.empty() ? 1 : shares[static_cast<size_t>(query)]) * sum * std::exp(max_lse - of_all[line]);
    for (const Span& span : spans) {
      const double weight = std::exp(span.lse - max_lse) / sum;
      if (f.wants_retrievals()) {
        f.add_retrieval(name, {row, cell % tokens, head, span.begin, span.end, weight, 1 - std::min(retrieved, 1.0)});
      }
      const int64_t blocks_back = f.batch.position[static_cast<size_t>(cell)] / period - (span.end / period - 1);
      back[static_cast<int64_t>(std::bit_floor(static_cast<uint64_t>(std::max<int64_t>(blocks_back, 1))))] += weight;
    }
  }
  if (f.wants_telemetry()) add_telemetry(f, name, carried, different, back);
}

}  // namespace quire
