// XXH3, 64 bit, as 16 hexadecimal digits: the checksum of every file that quire writes. Computing one counts as
// progress (core/progress.h).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct XXH3_state_s;

namespace quire {

std::string checksum_of(std::span<const std::byte> bytes);

// Computes the same checksum from bytes that come in pieces.
class Checksum {
 public:
  Checksum();
  void add(std::span<const std::byte> bytes);
  std::string text() const;  // the checksum of everything that was added

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace quire
