// The 128-bit XXH3 hash of a text that arrives in pieces. Texts with the same hash count as equal.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string_view>

namespace quire {

using Hash128 = std::array<uint64_t, 2>;

class ContentHash {
 public:
  ContentHash();
  ~ContentHash();
  ContentHash(const ContentHash&) = delete;
  ContentHash& operator=(const ContentHash&) = delete;

  void reset();
  void feed(std::string_view bytes);
  Hash128 value() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace quire
