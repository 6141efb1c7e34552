#include "core/files/checksum.h"

#include <xxhash.h>

#include "core/check.h"
#include "core/progress.h"

namespace quire {

namespace {

std::string hexadecimal(XXH64_hash_t hash) {
  return fmt::format("{:016x}", hash);
}

}  // namespace

std::string checksum_of(std::span<const std::byte> bytes) {
  note_progress();
  return hexadecimal(XXH3_64bits(bytes.data(), bytes.size()));
}

void Checksum::Free::operator()(XXH3_state_s* state) const {
  XXH3_freeState(state);
}

Checksum::Checksum() : state_(XXH3_createState()) {
  if (state_ == nullptr || XXH3_64bits_reset(state_.get()) != XXH_OK) {
    fail(ErrorKind::memory, "checksum: no memory for the XXH3 state");
  }
}

void Checksum::add(std::span<const std::byte> bytes) {
  note_progress();
  if (bytes.empty()) return;
  if (XXH3_64bits_update(state_.get(), bytes.data(), bytes.size()) != XXH_OK) {
    fail(ErrorKind::internal, "checksum: XXH3 refused {} bytes", bytes.size());
  }
}

std::string Checksum::text() const {
  return hexadecimal(XXH3_64bits_digest(state_.get()));
}

}  // namespace quire
