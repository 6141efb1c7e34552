#include "trainers/checkpoint/stored_moments.h"

#include <algorithm>
#include <charconv>
#include <cmath>
#include <map>
#include <set>

#include "core/check.h"

namespace quire {

namespace {

constexpr std::string_view kPart = "optimizer";

// A tensor of a checkpoint as a range of a moment's elements.
struct StoredSlice {
  std::string name;
  int64_t begin = 0;
  int64_t end = 0;
};

StoredSlice slice_of(const std::string& file, const NamedTensor& stored) {
  const size_t open = stored.name.find('[');
  if (open == std::string::npos) return {stored.name, 0, stored.tensor.numel()};
  StoredSlice slice{stored.name.substr(0, open), -1, -1};
  const char* const end = stored.name.data() + stored.name.size();
  const auto begin = std::from_chars(stored.name.data() + open + 1, end, slice.begin);
  const auto rest = begin.ptr == end ? begin : std::from_chars(begin.ptr + 1, end, slice.end);
  const bool reads =
      begin.ec == std::errc{} && rest.ec == std::errc{} && *begin.ptr == ':' && rest.ptr + 1 == end && *rest.ptr == ']';
  if (!reads || slice.begin < 0 || slice.end < slice.begin || slice.end - slice.begin != stored.tensor.numel()) {
    fail(ErrorKind::checkpoint, "{}.h5: {} is no slice of {} elements", file, stored.name, stored.tensor.numel());
  }
  return slice;
}

// A moment to be loaded, and the ranges of it that have been loaded.
struct Needed {
  Moment moment;
  std::vector<ArenaRange> loaded;
};

class Loading {
 public:
  Loading(const ParameterStore& store, const Optimizer& optimizer) {
    for (const Moment& moment : optimizer.moments()) needed_[moment.name].push_back({moment, {}});
    for (const ParameterStore::Entry& entry : store.entries()) parameters_.insert(entry.name);
  }

  void take(const std::string& file, const NamedTensor& stored) {
    const StoredSlice slice = slice_of(file, stored);
    const auto found = needed_.find(slice.name);
    if (found == needed_.end()) {
      // A slice that is not needed belongs to another rank, or else to another model.
      if (parameters_.count(slice.name.substr(slice.name.find('.') + 1)) > 0) return;
      fail(ErrorKind::checkpoint, "{}.h5: {} is not in this model; the checkpoint is of another model", file,
           stored.name);
    }
    for (auto& [moment, loaded] : found->second) {
      const Tensor& to = moment.values;
      const bool is_whole = slice.name == stored.name;
      if (stored.tensor.dtype() != to.dtype() || slice.end > moment.shape.numel() ||
          (is_whole && !(stored.tensor.shape() == moment.shape))) {
        fail(ErrorKind::checkpoint, "{}.h5: {} is {} {} but the model wants {} {}", file, stored.name,
             name_of(stored.tensor.dtype()), stored.tensor.shape().to_string(), name_of(to.dtype()),
             moment.shape.to_string());
      }
      const ArenaRange both{std::max(slice.begin, moment.begin), std::min(slice.end, moment.end)};
      if (both.size() <= 0) continue;
      const Tensor from = stored.tensor.reshape({stored.tensor.numel()});
      to.reshape({to.numel()})
          .slice(0, both.begin - moment.begin, both.end - moment.begin)
          .copy_from(from.slice(0, both.begin - slice.begin, both.end - slice.begin));
      loaded.push_back(both);
    }
  }

  // Describes the first moment that is incomplete or has a slice twice; empty when all are loaded.
  std::string missing() const {
    for (const auto& [name, slices] : needed_) {
      for (const auto& [moment, loaded] : slices) {
        std::vector<ArenaRange> ranges = loaded;
        std::sort(ranges.begin(), ranges.end(), [](const auto& a, const auto& b) { return a.begin < b.begin; });
        int64_t at = moment.begin;
        for (const ArenaRange& range : ranges) at = range.begin == at ? range.end : -1;
        if (at != moment.end) return slice_name(moment);
      }
    }
    return "";
  }

 private:
  std::map<std::string, std::vector<Needed>> needed_;
  std::set<std::string> parameters_;
};

// Inverts moments_part_name().
int rank_of_part(const std::string& part) {
  int rank = 0;
  if (part.size() > kPart.size()) std::from_chars(part.data() + kPart.size() + 1, part.data() + part.size(), rank);
  return rank;
}

}  // namespace

std::string moments_part_name(int rank) {
  return rank == 0 ? std::string(kPart) : fmt::format("{}-{:04}", kPart, rank);
}

bool is_moments_part(const std::string& part) {
  return part == kPart || part.starts_with(std::string(kPart) + "-");
}

void load_moments(const CheckpointReader& reader, const ParameterStore& store, const Optimizer& optimizer,
                  const RankPlace& place) {
  // With the same number of ranks, a rank's own part has everything. With another number, the needed slices are in the
  // parts of ranks that had about the same place among them.
  std::vector<std::string> parts;
  for (const std::string& part : reader.parts()) {
    if (is_moments_part(part)) parts.push_back(part);
  }
  if (parts.empty()) fail(ErrorKind::checkpoint, "{}: has no {}.h5", reader.path().string(), kPart);
  const double at = (place.rank + 0.5) / place.ranks * static_cast<double>(parts.size());
  const auto distance = [&](const std::string& part) { return std::abs(rank_of_part(part) + 0.5 - at); };
  std::stable_sort(parts.begin(), parts.end(),
                   [&](const std::string& a, const std::string& b) { return distance(a) < distance(b); });
  Loading loading(store, optimizer);
  for (const std::string& part : parts) {
    reader.visit_part(part, [&](const NamedTensor& stored) { loading.take(part, stored); });
    if (parts.size() > 1 && loading.missing().empty()) return;
  }
  if (const std::string name = loading.missing(); !name.empty()) {
    fail(ErrorKind::checkpoint, "{}: {} of the optimizer is not there once; the checkpoint is of another model",
         reader.path().string(), name);
  }
}

}  // namespace quire
