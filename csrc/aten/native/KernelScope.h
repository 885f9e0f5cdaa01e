#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include "../../runtime/OpenRegGenerator.h"
#include "../../runtime/OpenRegStorage.h"

// Runs a CPU kernel in place on device memory. Nothing is copied: the kernel gets *aliases*, CPU tensors over the same
// bytes, and what it allocates is device memory that becomes the result.
//
//   KernelScope scope(policy);
//   scope.see(self, ...); scope.see(other, ...); // 1. find the common device, refuse mixed ones as CUDA does
//   scope.enter();                               // 2. from here CPU allocations are device memory
//   Tensor out = cpu_kernel(scope.alias(self), scope.alias(other));
//   return scope.result(std::move(out));         // 3. back to device tensors
//
// Rules: an alias and everything made from it must be gone, or given to result(), when the scope ends, because the device
// tensor owns the memory. Below this line no device tensor exists, so autograd, autocast and device guards are off.
namespace at::openreg {

using c10::DeviceIndex;

// How an operator's tensors may differ in device.
struct OperatorPolicy {
  std::string method; // as in PyTorch's sentence: "wrapper_PrivateUse1_addmm"
  bool exact = true; // every tensor on one device; otherwise TensorIterator's rule, which takes 0-dim CPU tensors as scalars
  bool cpu_indices = false; // CPU index tensors are taken, as x[index] does on CUDA
};

// Of an operator by its schema; made once, then a pointer comparison.
const OperatorPolicy& policy_of(const c10::FunctionSchema& schema);

class KernelScope {
 public:
  explicit KernelScope(const OperatorPolicy& policy) : policy_(policy) {}
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

  // ---- 1. before the kernel
  void see(const Tensor& tensor, const c10::Argument& argument) {
    if (C10_UNLIKELY(!tensor.defined())) {
      return;
    }
    const Device device = tensor.device();
    if (C10_LIKELY(device.is_privateuseone() && (device_ < 0 || device_ == device.index()))) {
      device_ = device.index();
    } else {
      see_other(tensor, argument);
    }
  }
  void see(Device device); // of a factory
  void enter();

  // ---- 2. around the kernel
  Tensor alias(const Tensor& tensor);
  Generator generator(const std::optional<Generator>& generator) const;
  DeviceIndex device() const {
    return device_;
  }

  // ---- 3. after it
  // An alias gives its device tensor, a view of an alias a view of that tensor, fresh memory a tensor that owns it, a CPU
  // operand itself.
  Tensor result(Tensor&& tensor);

  // Carries over what an in-place or out= kernel changed besides the bytes: sizes, strides, a larger storage.
  void write_back();

 private:
  struct Alias {
    Tensor device;
    Tensor cpu;
  };
  struct Foreign { // a tensor that is not on the scope's device, judged in enter()
    Tensor tensor;
    const c10::Argument* argument;
  };

  const OperatorPolicy& policy_;
  DeviceIndex device_ = -1;
  bool factory_ = false;
  bool cpu_result_ = false; // device=cpu was asked for
  c10::SmallVector<Alias, 4> aliases_;
  c10::SmallVector<Foreign, 2> foreign_;
  c10::SmallVector<std::pair<c10::intrusive_ptr<c10::StorageImpl>, c10::intrusive_ptr<c10::StorageImpl>>, 2> adopted_;
  std::optional<c10::openreg::KernelAllocations> allocations_;
  std::optional<c10::impl::ExcludeDispatchKeyGuard> excluded_;

  void see_other(const Tensor& tensor, const c10::Argument& argument);
  void check_foreign() const;
};

} // namespace at::openreg
