#include "aten/native/Copy.h"

#include <ATen/ExpandUtils.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/core/CachingHostAllocator.h>
#include <ATen/ops/copy_ops.h>
#include <openreg_graph.h>

#include <algorithm>
#include <cstring>
#include <tuple>

#include "runtime/OpenRegGraphsC10Utils.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegWait.h"
#include "simulator/borrowed/Components.h"
#include "simulator/borrowed/KernelScope.h"
#include "simulator/borrowed/OpenMPTeam.h"
#include "simulator/borrowed/queue/Operands.h"
#include "simulator/borrowed/queue/Queue.h"

// The copies that copy_ leaves to a kernel (../aten/native/Copy.h). Here the kernel is the CPU's copy_ on aliases. An
// alias has the same lazy conj and neg bits as its device tensor, so no operand needs resolve_conj() or resolve_neg()
// first.
namespace at::openreg {
namespace {

bool is_pinned(const Tensor& tensor) {
  return at::getHostAllocator(identity.type) && tensor.is_pinned();
}

bool is_pageable(const Tensor& tensor) {
  return tensor.is_cpu() && !is_pinned(tensor);
}

// Returns the CPU tensor that stands for `tensor` in a queued copy: the alias of a device tensor, or a tensor over the
// same memory as a pinned tensor. An ordinary CPU source is cloned, because the host may change the source after the
// call. Returns an undefined tensor if the copy cannot be queued.
Tensor queued_operand(const Tensor& tensor, bool is_source) {
  const TensorImpl& impl = *tensor.unsafeGetTensorImpl();
  c10::StorageImpl* storage = tensor.storage().unsafeGetStorageImpl();
  if (is_device_tensor(tensor)) {
    return may_be_queued(storage) ? make_like(c10::openreg::cpu_view_of(storage), c10::DispatchKey::CPU, impl)
                                  : Tensor();
  }
  if (is_pinned(tensor)) {
    return make_like(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage), c10::DispatchKey::CPU, impl);
  }
  return is_source ? tensor.clone() : Tensor();
}

// Queues the CPU's copy_. Returns false if the caller must run the copy on its own thread, for example because the host
// must wait for the copy, the copy may raise an error, or an operand cannot be queued.
bool queue_copy(const Tensor& self, const Tensor& source, bool non_blocking) {
  const bool with_host = self.is_cpu() || source.is_cpu();
  if ((with_host && !non_blocking) || self.is_same(source) || !is_expandable_to(source.sizes(), self.sizes()) ||
      has_internal_overlap(self) == MemOverlap::Yes) {
    return false;
  }
  const c10::impl::ExcludeDispatchKeyGuard below(kExcluded);
  if (orMayCapture() && is_pageable(source)) {
    return false; // a graph would keep the bytes of now: a capture refuses the copy
  }
  const Tensor to = queued_operand(self, false), from = queued_operand(source, true);
  if (!to.defined() || !from.defined()) {
    return false;
  }
  if (to.is_alias_of(from) && get_overlap_status(to, from) == MemOverlapStatus::Partial) {
    return false;
  }
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow(at::_ops::copy_::name, at::_ops::copy_::overload_name);
  on_copy_stream(self, source, [&](c10::DeviceIndex device) {
    queue_cpu_kernel(c10::openreg::getCurrentOpenRegStream(device), op, {to, from, non_blocking});
  });
  return true;
}

// The traits for the KernelScope of copy_. The operands of copy_ may be on any devices, so they are not added to the
// scope's device check.
const OperatorTraits kAnywhere{.name = "aten::copy_"};

// Whether the CPU's copy_ would move one block of bytes on one thread. Tensors that share their storage are left to
// that kernel, which refuses those that overlap in part.
bool is_small_block(const Tensor& self, const Tensor& source) {
  return self.device() == source.device() && 0 < self.numel() && self.numel() < at::internal::GRAIN_SIZE &&
         !have_components(self, source) && !self.is_alias_of(source) && is_block(self, source);
}

// Copies on this thread: runs the CPU's copy_, or moves the bytes of a small block itself, which takes half the time.
void copy_now(Tensor& self, const Tensor& source, bool non_blocking, c10::DeviceIndex device) {
  const std::tuple operands(&self, &source, non_blocking);
  const auto visit_operands = [](void* data, orOperandFn_t visit, void* context) {
    const auto [self, source, non_blocking] = *static_cast<const std::tuple<Tensor*, const Tensor*, bool>*>(data);
    const auto visit_all = [&](const Tensor& tensor, unsigned access) {
      const bool is_pinned =
          non_blocking && tensor.is_cpu() && tensor.is_pinned(); // CUDA's copy may still use the memory after the call
      for_each_component(*tensor.unsafeGetTensorImpl(), [&](const TensorImpl& part) {
        if (part.device().type() == identity.type || is_pinned) {
          c10::openreg::visit_tensor(part, access, visit, context);
        }
      });
    };
    visit_all(*self, orAccessWrite);
    visit_all(*source, orAccessRead);
  };
  const orStream_t stream = c10::openreg::current_stream_handle(device);
  const c10::openreg::Kernel kernel(
      stream, kAnywhere.name.c_str(), visit_operands, const_cast<void*>(static_cast<const void*>(&operands)));
  if (!non_blocking && self.device().type() != source.device().type() &&
      C10_UNLIKELY(c10::openreg::wait_is_observed())) {
    c10::openreg::notify_wait(stream);
  }
  if (is_small_block(self, source)) {
    run_backward_on_this_thread();
    std::memcpy(
        orGetKernelPointer(self.mutable_data_ptr()), orGetKernelPointer(source.const_data_ptr()), self.nbytes());
    return;
  }
  KernelScope scope(kAnywhere);
  scope.enter();
  if (C10_UNLIKELY(have_components(self, source))) {
    // The copy replaces the components of `self`. The CPU's kernel makes the new components in host memory, and
    // write_back() moves them to the device.
    scope.alias(self)->copy_(*scope.alias(source), non_blocking);
    scope.write_back();
    return;
  }
  Tensor destination = *scope.alias(self);
  at::_ops::copy_::redispatch(
      c10::DispatchKeySet(c10::DispatchKey::CPU), destination, *scope.alias(source), non_blocking);
}

// Raises the errors of a copy that the CPU's copy_ would find. In a capture it does not run.
void check_fit(const Tensor& self, const Tensor& source) {
  TORCH_CHECK(
      is_expandable_to(source.sizes(), self.sizes()),
      "output with shape ",
      self.sizes(),
      " doesn't match the broadcast shape ",
      infer_size(self.sizes(), source.sizes()));
  assert_no_internal_overlap(self);
  assert_no_partial_overlap(self, source);
}

// On CUDA a kernel converts the elements, and a copy of bytes moves them from or to the host. That copy is what a capture
// refuses. Returns whether the stream captures and there is nothing to copy.
bool refuse_host_copy_in_capture(const Tensor& self, const Tensor& source, bool non_blocking, c10::Stream stream) {
  if (c10::openreg::capture_of(stream) == 0) {
    return false;
  }
  const bool waits = (self.is_cpu() || source.is_cpu()) && !non_blocking;
  if (self.numel() > 0 && (waits || is_pageable(self) || is_pageable(source))) {
    const orStream_t native = c10::openreg::OpenRegStream(stream).stream();
    const size_t size = std::min(self.element_size(), source.element_size());
    OPENREG_CHECK(orMemcpyWithStream(self.mutable_data_ptr(), source.const_data_ptr(), size, orMemcpyDefault, native));
  }
  return self.numel() == 0;
}

void copy(Tensor& self, const Tensor& source, bool non_blocking) {
  const bool may_be_captured = orMayCapture() && !have_components(self, source);
  if (may_be_captured) {
    check_fit(self, source);
  }
  if (C10_UNLIKELY(!c10::openreg::executes_inline()) && !have_components(self, source) &&
      queue_copy(self, source, non_blocking)) {
    return;
  }
  if (!non_blocking && self.device().type() != source.device().type()) {
    c10::openreg::note_synchronization();
  }
  on_copy_stream(self, source, [&](c10::DeviceIndex device) {
    if (may_be_captured &&
        refuse_host_copy_in_capture(self, source, non_blocking, c10::openreg::getCurrentOpenRegStream(device))) {
      return;
    }
    copy_now(self, source, non_blocking, device);
  });
}

const bool copies_are_registered = [] {
  set_copy_kernel(&copy);
  return true;
}();

} // namespace
} // namespace at::openreg
