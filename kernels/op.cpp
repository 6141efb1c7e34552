#include "kernels/op.h"

#include <chrono>

#include "core/check.h"

namespace quire {

namespace {

std::vector<OpBase*>& slots() {
  static std::vector<OpBase*> all;
  return all;
}

bool g_timing = false;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

}  // namespace

OpBase::OpBase(const char* name) : name_(name) {
  slots().push_back(this);
}

void OpBase::reset_stats() {
  calls_ = 0;
  seconds_ = 0;
  bytes_ = 0;
  flops_ = 0;
}

const std::vector<OpBase*>& OpBase::all() {
  return slots();
}

void OpBase::set_timing(bool on) {
  g_timing = on;
}

bool OpBase::timing() {
  return g_timing;
}

void OpBase::fail_unbound(DeviceKind kind) const {
  fail(ErrorKind::internal, "{}: no kernel for device {}", name_, name_of(kind));
}

void OpBase::fail_mixed(Device first, Device second) const {
  fail(ErrorKind::internal, "{}: tensors on {}:{} and {}:{}", name_, name_of(first.kind), first.index,
       name_of(second.kind), second.index);
}

double OpBase::start() const {
  return g_timing ? now() : 0;
}

// Ranks that are threads of one process share the slots; a lost count in a profile is harmless, a torn one is not.
void OpBase::finish(double started, double bytes, double flops) {
  ++calls_;
  seconds_ += now() - started;
  bytes_ += bytes;
  flops_ += flops;
}

}  // namespace quire
