#include "aten/native/Copy.h"

#include <ATen/core/CachingHostAllocator.h>
#include <ATen/native/Resize.h>

#include "aten/native/Layouts.h"
#include "aten/native/Minimal.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegStorage.h"
#include "runtime/OpenRegWait.h"

// Copies between the host and a device, between devices, and on one device. A copy that is one block of bytes needs no
// kernel. The copy kernel (Copy.h), if there is one, makes all other copies, and those on one device.
namespace at::openreg {
namespace {

using c10::openreg::check_memory;

constinit CopyKernel copy_kernel = nullptr;

bool copyable(const Tensor& tensor) {
  return (tensor.layout() == kStrided || has_components(*tensor.unsafeGetTensorImpl())) &&
         (is_device_tensor(tensor) || tensor.is_cpu());
}

void copy_block(const Tensor& self, const Tensor& source, bool non_blocking) {
  void* to = self.mutable_data_ptr();
  const void* from = source.const_data_ptr();
  const size_t size = self.nbytes();
  on_copy_stream(self, source, [&](c10::DeviceIndex device) {
    const orStream_t queue = c10::openreg::getCurrentOpenRegStream(device).stream();
    const bool with_host = self.is_cpu() || source.is_cpu();
    if (with_host && !non_blocking) {
      c10::openreg::note_synchronization();
      OPENREG_CHECK(orMemcpyWithStream(to, from, size, orMemcpyDefault, queue));
      c10::openreg::notify_wait(queue);
      return;
    }
    OPENREG_CHECK(orMemcpyAsync(to, from, size, orMemcpyDefault, queue));
    for (const Tensor* tensor : std::initializer_list<const Tensor*>{&self, &source}) {
      if (tensor->is_cpu()) { // a pinned block must not be reused before the copy is done
        const auto& data = tensor->storage().data_ptr();
        at::getHostAllocator(identity.type)
            ->record_event(data.get(), data.get_context(), c10::openreg::getCurrentOpenRegStream(device));
      }
    }
  });
}

} // namespace

bool is_block(const Tensor& self, const Tensor& source) {
  return self.scalar_type() == source.scalar_type() && self.sizes() == source.sizes() && self.is_contiguous() &&
         source.is_contiguous() && self.is_conj() == source.is_conj() && self.is_neg() == source.is_neg();
}

void set_copy_kernel(CopyKernel kernel) {
  copy_kernel = kernel;
}

Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      copyable(self) && copyable(source),
      "copy_ from ",
      source.toString(),
      " on ",
      source.device(),
      " to ",
      self.toString(),
      " on ",
      self.device(),
      " is not supported by the ",
      identity.device,
      " device.");
  TORCH_CHECK(
      !self._is_zerotensor(),
      "ZeroTensors are immutable. Please materialize the tensor using `.clone()`, if you want a mutable zero tensor.");
  if (C10_UNLIKELY(source._is_zerotensor())) { // a ZeroTensor has no memory
    return self.zero_();
  }
  check_memory(*self.unsafeGetTensorImpl(), "aten::copy_");
  check_memory(*source.unsafeGetTensorImpl(), "aten::copy_");
  // A copy within one device goes to the copy kernel if there is one, because a kernel may use all threads.
  const bool has_kernel = copy_kernel && self.device() == source.device();
  if (!has_kernel && !have_components(self, source) && is_block(self, source)) {
    c10::openreg::check_not_forked();
    if (self.numel() > 0) {
      copy_block(self, source, non_blocking);
    }
    return self;
  }
  TORCH_CHECK_NOT_IMPLEMENTED(
      copy_kernel,
      "copy_ from ",
      source.toString(),
      " to ",
      self.toString(),
      " is not a copy of one block of bytes, and the ",
      identity.device,
      " device has no kernel for it. Register one with "
      "set_copy_kernel().");
  copy_kernel(self, source, non_blocking);
  return self;
}

Tensor _copy_from(const Tensor& self, const Tensor& destination, bool non_blocking) {
  Tensor written = destination;
  copy_(written, self, non_blocking);
  return destination;
}

Tensor _copy_from_and_resize(const Tensor& self, const Tensor& destination) {
  at::native::resize_output(destination, self.sizes());
  return openreg::_copy_from(self, destination, false);
}

} // namespace at::openreg
