#include <ATen/core/CachingHostAllocator.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/copy_ops.h>

#include "../../runtime/OpenRegStream.h"
#include "KernelScope.h"
#include "Layouts.h"
#include "Minimal.h"

// Copies between the host and a device, between devices, and on one device, with conversion of dtype, layout and the lazy
// conj and neg bits. All of it is the CPU's copy_ over aliases: the bits stay on the aliases, so nothing is materialised.
namespace at::openreg {
namespace {

bool copyable(const Tensor& tensor) {
  return (tensor.layout() == kStrided || has_components(*tensor.unsafeGetTensorImpl())) &&
         (tensor.is_privateuseone() || tensor.is_cpu());
}

// Whether the copy is one block of bytes between the host and a device, or between devices: the device's own copy then does
// it. Everything else converts or rearranges, and within a device PyTorch's kernel uses all threads.
bool is_block(const Tensor& self, const Tensor& source) {
  return self.device() != source.device() && self.scalar_type() == source.scalar_type() &&
         self.sizes() == source.sizes() && self.is_contiguous() && source.is_contiguous() &&
         self.is_conj() == source.is_conj() && self.is_neg() == source.is_neg() && !source._is_zerotensor();
}

void copy_block(const Tensor& self, const Tensor& source, bool non_blocking) {
  const Tensor& on_device = self.is_privateuseone() ? self : source;
  const Stream stream = c10::openreg::current_stream(on_device.device().index());
  const orStream_t queue = c10::openreg::stream_handle(stream);
  void* to = self.mutable_data_ptr();
  const void* from = source.const_data_ptr();
  const size_t size = self.nbytes();
  if (!non_blocking) {
    OPENREG_CHECK(orMemcpyWithStream(to, from, size, orMemcpyDefault, queue));
    return;
  }
  OPENREG_CHECK(orMemcpyAsync(to, from, size, orMemcpyDefault, queue));
  for (const Tensor* tensor : std::initializer_list<const Tensor*>{&self, &source}) {
    if (tensor->is_cpu()) { // a pinned block must not be reused before the copy has passed
      const auto& data = tensor->storage().data_ptr();
      at::getHostAllocator(DeviceType::PrivateUse1)->record_event(data.get(), data.get_context(), stream);
    }
  }
}

// copy_ is what moves tensors between devices: its operands may be anywhere, so that its scope sees none of them.
const DevicePolicy kAnywhere{.name = "aten::copy_"};

} // namespace

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
      " is not supported by the openreg device.");
  c10::openreg::StreamLock locks[2];
  for (int i = 0; i < 2; ++i) {
    const Tensor& tensor = i ? source : self;
    if (tensor.is_privateuseone()) {
      locks[i] = c10::openreg::drain_current_stream(tensor.device().index());
    }
  }
  const bool dense = !has_components(*self.unsafeGetTensorImpl()) && !has_components(*source.unsafeGetTensorImpl());
  if (dense && is_block(self, source)) {
    if (self.numel() > 0) {
      copy_block(self, source, non_blocking);
    }
    return self;
  }
  KernelScope scope(kAnywhere);
  scope.enter();
  if (C10_UNLIKELY(!dense)) {
    // Replaces components rather than bytes: the CPU's kernel makes them in host memory, write_back() moves them.
    scope.alias(self).copy_(scope.alias(source), non_blocking);
    scope.write_back();
    return self;
  }
  Tensor destination = scope.alias(self);
  at::_ops::copy_::redispatch(
      c10::DispatchKeySet(c10::DispatchKey::CPU), destination, scope.alias(source), non_blocking);
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
