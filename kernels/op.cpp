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
bool g_checking = false;

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

void OpBase::set_checking(bool on) {
  g_checking = on;
}

bool OpBase::checking() {
  return g_checking;
}

void OpBase::synchronize(DeviceKind kind) {
  device_backend(kind).synchronize();
}

void OpBase::fail_on_device(const std::string& operands, const DeviceError& error) const {
  fail(ErrorKind::internal, "{} of {}: {}", name_, operands, error.what());
}

void op_detail::OperandList::operator()(const Tensor& tensor) {
  if (!tensor.defined()) return;
  text += fmt::format("{}{} {}", text.empty() ? "" : ", ", name_of(tensor.dtype()), tensor.shape().to_string());
}

void OpBase::fail_unbound(DeviceKind kind) const {
  fail(ErrorKind::internal, "{}: no kernel for device {}", name_, name_of(kind));
}

void OpBase::fail_mixed(Device first, Device second) const {
  fail(ErrorKind::internal, "{}: tensors on {}:{} and {}:{}", name_, name_of(first.kind), first.index,
       name_of(second.kind), second.index);
}

// Kernels of a device may still run when the call returns, so time is measured from an idle device to an idle device.
double OpBase::start(DeviceKind kind) const {
  if (!g_timing) return 0;
  synchronize(kind);
  return now();
}

// Ranks that are threads of one process share the slots; a lost count in a profile is harmless, a torn one is not.
void OpBase::finish(DeviceKind kind, double started, double bytes, double flops) {
  synchronize(kind);
  ++calls_;
  seconds_ += now() - started;
  bytes_ += bytes;
  flops_ += flops;
}

}  // namespace quire
