#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>
#include <c10/util/flat_hash_map.h>

#include <memory>

#include "aten/native/DeviceCheck.h"
#include "runtime/OpenRegGenerator.h"
#include "runtime/OpenRegKernel.h"
#include "simulator/borrowed/CpuView.h"
#include "simulator/borrowed/KernelAllocations.h"

// Runs a CPU kernel in place on device memory. The operands are not copied: the kernel gets *aliases*, which are CPU
// tensors over the same bytes. A kernel of PyTorch allocates the memory of its results on the device, and all other
// memory on the host (KernelAllocations.h). Any other kernel allocates host memory, and its results are copied to the
// device.
//
//   KernelScope scope(traits);
//   scope.add_operand(self, ...);               // 1. find the common device
//   scope.enter();                               // 2. refuse mixed devices; the kernel may now allocate
//   Tensor out = cpu_kernel(*scope.alias(self), *scope.alias(other));
//   return scope.result(std::move(out));         // 3. back to device tensors
//
// Rules:
//   - An alias must be gone, or given to result(), when the scope ends, because the device tensor owns the memory. If a
//     kernel that is not PyTorch's keeps an alias (in a Python object, in a packed parameter), the alias becomes a
//     copy in host memory.
//   - Autograd and autocast are off while the kernel runs (kExcluded). The kernel sees CPU tensors only, so no device
//     guard acts either.
namespace at::openreg {

// The dispatch keys that are off while a kernel of the device runs. Autograd and autocast have handled the device
// tensors already, and must not handle the CPU tensors that stand for them.
constexpr c10::DispatchKeySet kExcluded =
    c10::autograd_dispatch_keyset_with_ADInplaceOrView | c10::autocast_dispatch_keyset;

// A tensor of backend `key` with the sizes, strides and dtype of `like` over `storage`.
Tensor make_like(c10::intrusive_ptr<c10::StorageImpl> storage, c10::DispatchKey key, const c10::TensorImpl& like);

// Makes `tensor` a device tensor over `storage`, which is a storage of the device. Copies nothing. If nobody else holds
// `tensor`, `tensor` is changed and returned; otherwise the result is a new tensor.
Tensor relabel(Tensor&& tensor, c10::intrusive_ptr<c10::StorageImpl> storage);

class KernelScope : public DeviceCheck {
 public:
  using DeviceCheck::DeviceCheck;
  ~KernelScope();
  KernelScope(const KernelScope&) = delete;
  KernelScope& operator=(const KernelScope&) = delete;

  // ---- 1. before the kernel
  void add_device(Device device); // the device argument of a factory
  // For an argument that is no tensor. `flag`: the argument is true, or an optional number that is given; of an
  // operator with a SyncRule that run_boxed() calls, also a number other than 0.
  void add_flag(bool flag, const c10::Argument& argument) {
    flag_bits_ = flag_bits_ << 1 | uint64_t{flag};
    if (C10_UNLIKELY(traits_.keeps_statistics && argument.name() == "training")) {
      training_ = flag;
    } else if (flag) {
      flags_.push_back(&argument);
    }
  }
  CallKey call_key() const;
  // Whether the host waits in this call, by the operator's SyncRule.
  bool waits_in_this_call() const {
    return traits_.sync && traits_.sync->waits({operands_, flags_});
  }
  // Takes the turn of the stream: waits for the work that is queued on the stream. Without a kernel, the call touches no
  // memory of the device, so it takes no turn.
  void enter(bool has_kernel = true);

  // ---- 2. around the kernel
  // The CPU tensor that stands for `tensor`. A tensor that is not on the device is its own alias. The first form
  // borrows `tensor` until the scope ends, because a second reference to a tensor that Python holds would take the GIL.
  // The alias that the first form returns is borrowed too, which saves two atomic instructions.
  c10::MaybeOwned<Tensor> alias(const Tensor& tensor);
  Tensor alias(Tensor&& tensor);
  Generator generator(const std::optional<Generator>& generator) const;

  // ---- 3. after the kernel
  // Returns the device tensor for `tensor`, a result of the kernel. If `tensor` is an alias, that is the alias's device
  // tensor. If `tensor` is a view of an alias, the function returns a view of that device tensor. If the result lies
  // in device memory that the kernel allocated (*fresh* memory), the function returns a new device tensor that owns the
  // memory. Host memory is copied to a new device tensor. An undefined tensor, a CPU operand, and the result of a
  // factory with device=cpu are returned as they are.
  Tensor result(Tensor&& tensor);

  // Gives the device tensors what an in-place or out= kernel changed besides the bytes, such as sizes, strides, a
  // larger storage, or components.
  void write_back();

  // Runs an in-place or out= kernel. If it fails after it resized its output, the output stays resized, as on CUDA.
  template <class Kernel>
  void run_and_write_back(const Kernel& kernel) {
    try {
      kernel();
    } catch (...) {
      write_back();
      throw;
    }
    write_back();
  }

 private:
  static constexpr size_t kFewAliases = 16; // up to this number, a search of aliases_ is faster than index_

  struct Alias {
    Alias(c10::MaybeOwned<Tensor> device, Tensor cpu, bool is_plain)
        : device(std::move(device)), cpu(std::move(cpu)), is_plain(is_plain) {}

    c10::MaybeOwned<Tensor> device;
    Tensor cpu;
    bool is_plain; // a tensor of the device without components
  };
  struct Adopted { // the storages of a result in fresh memory; the result keeps them alive
    c10::StorageImpl* cpu;
    c10::StorageImpl* device;
  };

  bool cpu_result_ = false; // device=cpu was asked for
  bool has_cow_ = false;    // an alias lies over a copy-on-write CPU view
  bool training_ = true;    // see is_written() in OperatorTraits.h
  c10::SmallVector<const c10::Argument*, 4> flags_;
  uint64_t flag_bits_ = 1;
  c10::SmallVector<Alias, 4> aliases_;
  c10::SmallVector<Adopted, 2> adopted_;
  std::optional<c10::openreg::Kernel> kernel_;
  std::optional<c10::openreg::KernelAllocations> allocations_;
  std::optional<c10::impl::ExcludeDispatchKeyGuard> excluded_;
  using Index = ska::flat_hash_map<const TensorImpl*, size_t>;
  std::unique_ptr<Index> index_; // from a device tensor to its place in aliases_; null while aliases_ has few elements

  bool makes_results() const;
  void refuse_wait_in_capture() const;
  void visit_operands(orOperandFn_t visit, void* context) const;
  const Tensor& alias(c10::MaybeOwned<Tensor> tensor);
  const Alias* find(const TensorImpl* device) const;
  c10::StorageImpl* ready_cpu_view(const TensorImpl& tensor) const;
  c10::intrusive_ptr<c10::StorageImpl> cpu_view(const TensorImpl& tensor);
  bool is_written(const c10::StorageImpl* storage) const;
  void separate();
};

} // namespace at::openreg
