// Op<void(Args...)>: one typed slot per operation with a function pointer per device. It is the only place where a
// device is chosen, where "same device" is checked, and where calls are counted and timed.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "core/tensor.h"

namespace quire {

struct OpStats {
  std::string name;
  int64_t calls = 0;
  double seconds = 0;
  double bytes = 0;  // bytes of all operands, each counted once per call: the least number that it has to move
  double flops = 0;  // floating-point operations, for slots that count them: products and attention
};

// The part of a slot that does not depend on its signature. Profiles, and the test that every device is bound, read the
// list of all slots.
class OpBase {
 public:
  explicit OpBase(const char* name);
  OpBase(const OpBase&) = delete;
  OpBase& operator=(const OpBase&) = delete;
  const char* name() const { return name_; }
  virtual bool is_bound(DeviceKind kind) const = 0;
  OpStats stats() const { return {name_, calls_, seconds_, bytes_, flops_}; }
  void reset_stats();

  static const std::vector<OpBase*>& all();
  // Timing costs two clock reads per call; off by default.
  static void set_timing(bool on);
  static bool timing();
  // Waits for the device after every call, so that an error names the kernel that failed and not a later one.
  static void set_checking(bool on);
  static bool checking();

 protected:
  ~OpBase() = default;
  [[noreturn]] void fail_unbound(DeviceKind kind) const;
  [[noreturn]] void fail_mixed(Device first, Device second) const;
  // Throws an error with the operation, its operands ("[4, 512] f32, ...") and the message of the device's library.
  [[noreturn]] void fail_on_device(const std::string& operands, const DeviceError& error) const;
  static void synchronize(DeviceKind kind);
  double start(DeviceKind kind) const;
  void finish(DeviceKind kind, double started, double bytes, double flops);

 private:
  const char* name_;
  int64_t calls_ = 0;
  double seconds_ = 0;
  double bytes_ = 0;
  double flops_ = 0;
};

namespace op_detail {

// Finds the device of the first defined tensor and whether another one differs.
struct DeviceFinder {
  bool found = false;
  Device device{};
  bool mixed = false;
  Device other{};
  int64_t bytes = 0;

  void operator()(const Tensor& tensor) {
    if (!tensor.defined()) return;
    bytes += tensor.bytes();
    if (!found) {
      found = true;
      device = tensor.device();
    } else if (!(tensor.device() == device)) {
      mixed = true;
      other = tensor.device();
    }
  }
};

// Lists the operands as text.
struct OperandList {
  std::string text;
  void operator()(const Tensor& tensor);
};

// Argument structs list their tensors in for_each_tensor(f).
template <typename T>
concept HoldsTensors = requires(const T& value, DeviceFinder& finder) {
  value.for_each_tensor(finder);
};

template <typename T, typename Visitor>
void visit(const T& value, Visitor& visitor) {
  if constexpr (std::is_same_v<T, Tensor>) {
    visitor(value);
  } else if constexpr (HoldsTensors<T>) {
    value.for_each_tensor(visitor);
  }
}

}  // namespace op_detail

template <typename Signature>
class Op;

template <typename... Args>
class Op<void(Args...)> final : public OpBase {
 public:
  using Function = void (*)(Args...);
  using Work = double (*)(Args...);
  explicit Op(const char* name) : OpBase(name) {}

  // flops: the floating-point operations of a call, for profiles.
  void count_flops(Work flops) { flops_ = flops; }

  void bind(DeviceKind kind, Function function) { functions_[static_cast<size_t>(kind)] = function; }
  bool is_bound(DeviceKind kind) const override {
    return kind == DeviceKind::meta || functions_[static_cast<size_t>(kind)] != nullptr;
  }

  // On meta tensors nothing is computed; only shapes and bytes matter. A function that is bound for meta allocates the
  // scratch that the kernels of a device would allocate (kernels/planned_scratch.h).
  void operator()(Args... args) {
    op_detail::DeviceFinder finder;
    (op_detail::visit(args, finder), ...);
    if (finder.mixed) fail_mixed(finder.device, finder.other);
    const Function function = functions_[static_cast<size_t>(finder.device.kind)];
    if (finder.device.kind == DeviceKind::meta) {
      if (function != nullptr) function(args...);
      return;
    }
    if (function == nullptr) fail_unbound(finder.device.kind);
    const double started = start(finder.device.kind);
    try {
      function(args...);
      if (checking()) synchronize(finder.device.kind);
    } catch (const DeviceError& error) {
      op_detail::OperandList operands;
      (op_detail::visit(args, operands), ...);
      fail_on_device(operands.text, error);
    }
    if (timing()) {
      finish(finder.device.kind, started, static_cast<double>(finder.bytes), flops_ == nullptr ? 0 : flops_(args...));
    }
  }

 private:
  Work flops_ = nullptr;
  std::array<Function, kDeviceKinds> functions_{};
};

}  // namespace quire

// QUIRE_OP(name, arguments) declares the operation `name`. kernels/slots.cpp includes every header with operations and
// defines them all.
#ifdef QUIRE_DEFINE_OPS
#define QUIRE_OP(name, ...) Op<void(__VA_ARGS__)> name(#name)
#else
#define QUIRE_OP(name, ...) extern Op<void(__VA_ARGS__)> name
#endif
