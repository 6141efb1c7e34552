// AddressSanitizer's allocator of g++ 12 is not made ready for fork(): when another thread is in the middle of an
// allocation, the child waits for ever at its own first one. Tests that copy a process while threads work ask here.
#pragma once

extern "C" __attribute__((weak)) void __asan_init();  // NOLINT(bugprone-reserved-identifier): its own
extern "C" __attribute__((weak)) void __tsan_init();  // NOLINT(bugprone-reserved-identifier): its own

namespace quire::test {

inline bool under_address_sanitizer() {
  return &__asan_init != nullptr;
}

// Both reserve most of the address space, so a limit of it would end any program.
inline bool may_limit_addresses() {
  return &__asan_init == nullptr && &__tsan_init == nullptr;
}

}  // namespace quire::test
