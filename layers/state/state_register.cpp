#include "layers/state/state_register.h"

#include <algorithm>
#include <utility>

#include "layers/state/state_tensors.h"

namespace quire {

DType StateRegister::type(const StateLayout::Register& spec, DType pool_type) {
  return spec.options.wide ? wide_type(pool_type) : spec.options.dtype.value_or(pool_type);
}

StateRegister::StateRegister(const StateLayout::Register& spec, int64_t rows, DType pool_type, Device device)
    : empty(at(rows), 1), offers_(at(rows), Offer::none) {
  const DType dtype = type(spec, pool_type);
  current = Tensor::zeros(with_leading({rows}, spec.shape), dtype, device);
  next = Tensor::zeros(with_leading({rows}, spec.shape), dtype, device);
}

void StateRegister::clear_row(int64_t row) {
  current.slice(0, row, row + 1).zero();
  empty[at(row)] = 1;
}

void StateRegister::forget() {
  std::fill(offers_.begin(), offers_.end(), Offer::none);
}

void StateRegister::put(int64_t row, bool written) {
  offers_[at(row)] = written ? Offer::written : Offer::left;
}

void StateRegister::commit(const std::vector<Segment>& last) {
  for (const Segment& segment : last) {
    const Offer offer = std::exchange(offers_[at(segment.row)], Offer::none);
    if (offer == Offer::none || segment.count == 0) continue;
    if (offer == Offer::left) {
      if (!segment.carried) clear_row(segment.row);
      continue;
    }
    current.slice(0, segment.row, segment.row + 1).copy_from(next.slice(0, segment.row, segment.row + 1));
    empty[at(segment.row)] = 0;
  }
}

}  // namespace quire
