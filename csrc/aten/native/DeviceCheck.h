#pragma once

#include <ATen/core/IListRef.h>
#include <ATen/core/List.h>
#include <c10/util/SmallVector.h>

#include "aten/native/OperatorTraits.h"
#include "runtime/OpenRegIdentity.h"

// The device check of one call: whether its tensors are on one device, or on several in a way that CUDA accepts.
namespace at::openreg {

using c10::DeviceIndex;

// Collects the operands of a call, finds their common device, and refuses mixed devices as CUDA does.
class DeviceCheck {
 public:
  explicit DeviceCheck(const OperatorTraits& traits) : traits_(traits) {}

  void add_operand(const Tensor& tensor, const c10::Argument& argument) {
    if (C10_UNLIKELY(!tensor.defined())) {
      return;
    }
    operands_.push_back({tensor.unsafeGetTensorImpl(), &argument}); // the caller's arguments keep the tensor alive
    const Device device = tensor.device();
    if (C10_LIKELY(device.type() == identity.type && (device_ < 0 || device_ == device.index()))) {
      device_ = device.index();
    } else {
      mixed_ = true;
    }
  }

  void check_devices() const {
    if (C10_UNLIKELY(mixed_ && device_ >= 0)) {
      check_mixed();
    }
  }
  bool spans_devices() const; // whether the operands are on several devices of this backend

  DeviceIndex device() const {
    return device_;
  }

 protected:
  const OperatorTraits& traits_;
  DeviceIndex device_ = -1;
  bool mixed_ = false; // not all operands are on one device of this backend
  c10::SmallVector<Operand, 6> operands_;

 private:
  void check_mixed() const;
  bool is_elsewhere(const Operand& each) const {
    const Device device = each.tensor->device();
    return device.type() == identity.type && device.index() != device_;
  }
};

// Adds the tensors of an argument to `check`: the argument is a tensor, an optional tensor, or a list of these. If
// `Check` has the function add_flag(), also adds a bool, and whether an optional integer is given. Does nothing for an
// argument of any other type. `Check` is DeviceCheck or a class derived from it.
template <class Check, class T>
void add_argument(Check& check, const T& value, const c10::Argument& argument) {
  if constexpr (std::is_same_v<T, std::optional<Tensor>>) {
    if (value.has_value()) {
      check.add_operand(*value, argument);
    }
  } else if constexpr (std::is_same_v<T, c10::List<std::optional<Tensor>>>) {
    // c10::List's own iterators would copy each tensor.
    for (const OptionalTensorRef tensor : IOptTensorListRef(value)) {
      if (tensor.has_value()) {
        check.add_operand(*tensor, argument);
      }
    }
  } else if constexpr (std::is_same_v<T, TensorList> || std::is_same_v<T, ITensorListRef>) {
    for (const Tensor& tensor : value) {
      check.add_operand(tensor, argument);
    }
  } else if constexpr (std::is_same_v<T, Tensor>) {
    check.add_operand(value, argument);
  } else if constexpr (std::is_same_v<T, bool> && requires { check.add_flag(value, argument); }) {
    check.add_flag(value, argument);
  } else if constexpr (requires {
                         check.add_flag(value[0], argument);
                         std::tuple_size<T>::value;
                       }) { // std::array
    for (const bool flag : value) {
      check.add_flag(flag, argument);
    }
  } else if constexpr (std::is_same_v<T, std::optional<int64_t>> || std::is_same_v<T, std::optional<c10::SymInt>>) {
    if constexpr (requires { check.add_flag(true, argument); }) {
      check.add_flag(value.has_value(), argument);
    }
  }
}

// Checks the devices of a call of `Op`. To be called by a kernel that computes with other operators, because each of
// those operators checks only the arguments that it gets. `args` are the first arguments of the call, in the order of
// the schema.
template <class Op, class... Args>
void check_devices(const Args&... args) {
  DeviceCheck check(traits_of<Op>());
  const c10::Argument* argument = schema_of<Op>().arguments().data();
  (add_argument(check, args, *argument++), ...);
  check.check_devices();
}

} // namespace at::openreg
