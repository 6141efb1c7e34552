#include "core/ranks/mpi/mpi_collectives.h"

#include <algorithm>
#include <utility>

#include "core/awake_time.h"
#include "core/check.h"

namespace quire {

namespace {

// The memory for arrived pieces, of all ranks together.
constexpr int64_t kPieceBytes = int64_t{8} << 20;
// MPI counts in int.
constexpr int64_t kMaxAtOnce = int64_t{1} << 28;

template <typename T>
MPI_Datatype type_of() {
  return std::is_same_v<T, double> ? MPI_DOUBLE : MPI_FLOAT;
}

template <typename T>
int64_t piece_size(size_t ranks) {
  return std::max<int64_t>(1024, kPieceBytes / static_cast<int64_t>(sizeof(T) * ranks));
}

}  // namespace

MpiCollectives::MpiCollectives(MpiThread& thread, MPI_Comm communicator, Control& control, std::string version)
    : thread_(thread),
      communicator_(communicator),
      control_(control),
      version_(std::move(version)),
      rank_(static_cast<size_t>(control.rank())),
      size_(static_cast<size_t>(control.size())) {
  for (Pieces& pieces : pieces_) pieces.arrived.resize(size_);
}

MpiCollectives::~MpiCollectives() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished_ == begun_; });
}

void MpiCollectives::begin(CpuCollective work) {
  {
    const std::lock_guard lock(mutex_);
    ++begun_;
  }
  thread_.post([this, work = std::move(work)] { serve(work); });
}

void MpiCollectives::serve(const CpuCollective& work) {
  std::exception_ptr error;
  {
    const std::lock_guard lock(mutex_);
    error = error_;
  }
  if (!error) {
    try {
      const bool wide = work.values.dtype() == DType::f64;
      if (work.reduces) wide ? reduce<double>(work) : reduce<float>(work);
      if (work.gathers) wide ? gather<double>(work) : gather<float>(work);
    } catch (...) {
      error = std::current_exception();
    }
  }
  const std::lock_guard lock(mutex_);
  ++finished_;
  error_ = error;
  changed_.notify_all();
}

template <typename T>
void MpiCollectives::reduce(const CpuCollective& work) {
  int64_t longest = 0;
  for (size_t rank = 0; rank < size_; ++rank) {
    longest = std::max(longest, work.bounds[rank + 1] - work.bounds[rank]);
  }
  // While one piece is added, the next one travels.
  const int64_t step = piece_size<T>(size_);
  if (longest > 0) begin_pieces<T>(work, 0, pieces_[0]);
  for (int64_t from = 0, turn = 0; from < longest; from += step, turn = 1 - turn) {
    Pieces& here = pieces_[static_cast<size_t>(turn)];
    await(here.requests);
    if (from + step < longest) begin_pieces<T>(work, from + step, pieces_[static_cast<size_t>(1 - turn)]);
    sum_pieces<T>(work, from, here);
  }
}

// Begins the exchange of the elements [from, from + piece_size) of every part.
template <typename T>
void MpiCollectives::begin_pieces(const CpuCollective& work, int64_t from, Pieces& pieces) {
  const auto count_of = [&](size_t rank) {
    return static_cast<int>(
        std::clamp<int64_t>(work.bounds[rank + 1] - work.bounds[rank] - from, 0, piece_size<T>(size_)));
  };
  const T* const values = work.values.data<T>();
  pieces.requests.clear();
  for (size_t distance = 1; distance < size_; ++distance) {
    // Each rank begins with its neighbour, so that not all send to the same rank.
    const size_t from_rank = (rank_ + size_ - distance) % size_;
    if (const int count = count_of(rank_); count > 0) {
      std::vector<std::byte>& arrived = pieces.arrived[from_rank];
      arrived.resize(std::max(arrived.size(), static_cast<size_t>(count) * sizeof(T)));
      check_mpi(MPI_Irecv(arrived.data(), count, type_of<T>(), static_cast<int>(from_rank), 0, communicator_,
                          &pieces.requests.emplace_back()),
                "MPI_Irecv");
    }
    const size_t to_rank = (rank_ + distance) % size_;
    if (const int count = count_of(to_rank); count > 0) {
      check_mpi(MPI_Isend(values + work.bounds[to_rank] + from, count, type_of<T>(), static_cast<int>(to_rank), 0,
                          communicator_, &pieces.requests.emplace_back()),
                "MPI_Isend");
    }
  }
}

template <typename T>
void MpiCollectives::sum_pieces(const CpuCollective& work, int64_t from, const Pieces& pieces) const {
  T* const mine = work.values.data<T>() + work.bounds[rank_] + from;
  std::vector<const T*> parts;
  for (size_t rank = 0; rank < size_; ++rank) {
    parts.push_back(rank == rank_ ? mine : reinterpret_cast<const T*>(pieces.arrived[rank].data()));
  }
  sum_in_rank_order<T>(parts, mine, std::min(work.bounds[rank_ + 1] - work.bounds[rank_] - from, piece_size<T>(size_)));
}

template <typename T>
void MpiCollectives::gather(const CpuCollective& work) {
  T* const values = work.values.data<T>();
  std::vector<MPI_Request>& requests = pieces_[0].requests;
  requests.clear();
  for (size_t distance = 1; distance < size_; ++distance) {
    const size_t from_rank = (rank_ + size_ - distance) % size_;
    const size_t to_rank = (rank_ + distance) % size_;
    for (int64_t at = work.bounds[from_rank]; at < work.bounds[from_rank + 1]; at += kMaxAtOnce) {
      const auto count = static_cast<int>(std::min(kMaxAtOnce, work.bounds[from_rank + 1] - at));
      check_mpi(MPI_Irecv(values + at, count, type_of<T>(), static_cast<int>(from_rank), 0, communicator_,
                          &requests.emplace_back()),
                "MPI_Irecv");
    }
    for (int64_t at = work.bounds[rank_]; at < work.bounds[rank_ + 1]; at += kMaxAtOnce) {
      const auto count = static_cast<int>(std::min(kMaxAtOnce, work.bounds[rank_ + 1] - at));
      check_mpi(MPI_Isend(values + at, count, type_of<T>(), static_cast<int>(to_rank), 0, communicator_,
                          &requests.emplace_back()),
                "MPI_Isend");
    }
  }
  await(requests);
}

// Waits for the requests. A failure of another rank, or ranks that do not come, end the wait.
void MpiCollectives::await(std::vector<MPI_Request>& requests) {
  AwakeTime waited;
  bool told = false;
  await_mpi(requests, [&] {
    control_.check();
    if (waited.passed() < control_.deadline() || told) return;
    told = true;
    control_.overdue(finished() + 1);
  });
  if (told) control_.overdue(0);
}

void MpiCollectives::wait() {
  std::unique_lock lock(mutex_);
  changed_.wait(lock, [&] { return finished_ == begun_ || error_; });
  if (error_) std::rethrow_exception(error_);
}

int64_t MpiCollectives::finished() const {
  const std::lock_guard lock(mutex_);
  return finished_;
}

}  // namespace quire
