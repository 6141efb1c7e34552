#include "data/corpus/content_hash.h"

#include <xxhash.h>

#include "core/check.h"

namespace quire {

// XXH3_state_t needs an alignment that only its own functions give.
struct ContentHash::State {
  State() : xxh3(XXH3_createState()) {}
  ~State() { XXH3_freeState(xxh3); }
  State(const State&) = delete;
  State& operator=(const State&) = delete;
  XXH3_state_t* xxh3;
};

ContentHash::ContentHash() : state_(std::make_unique<State>()) {
  if (state_->xxh3 == nullptr) fail(ErrorKind::memory, "content hash: no memory for the XXH3 state");
  reset();
}

ContentHash::~ContentHash() = default;

void ContentHash::reset() {
  QUIRE_CHECK(XXH3_128bits_reset(state_->xxh3) == XXH_OK, "content hash: XXH3 cannot begin");
}

void ContentHash::feed(std::string_view bytes) {
  QUIRE_CHECK(XXH3_128bits_update(state_->xxh3, bytes.data(), bytes.size()) == XXH_OK,
              "content hash: XXH3 refused {} bytes", bytes.size());
}

Hash128 ContentHash::value() const {
  const XXH128_hash_t hash = XXH3_128bits_digest(state_->xxh3);
  return {hash.high64, hash.low64};
}

}  // namespace quire
