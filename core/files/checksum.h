// XXH3, 64 bit, as 16 hexadecimal digits: the checksum of every file that quire writes. Whatever is summed up is work
// that goes on (core/progress.h).
#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <string>

struct XXH3_state_s;

namespace quire {

std::string checksum_of(std::span<const std::byte> bytes);

// The same of bytes that come in pieces.
class Checksum {
 public:
  Checksum();
  void add(std::span<const std::byte> bytes);
  std::string text() const;  // of everything that was added

 private:
  struct Free {
    void operator()(XXH3_state_s* state) const;
  };
  std::unique_ptr<XXH3_state_s, Free> state_;
};

}  // namespace quire
