#pragma once

#include <ATen/core/Tensor.h>

#include "../../runtime/OpenRegStream.h"

// What copy_ (Minimal.h) leaves to a kernel.
namespace at::openreg {

// A copy that is more than one block of bytes: it converts the dtype, rearranges elements, or resolves the lazy conj and
// neg bits. The operands are on any devices, and at least one of them is on a device of this backend.
using CopyKernel = void (*)(Tensor& self, const Tensor& source, bool non_blocking);

// Without a kernel, copy_ copies blocks of bytes only. Must be called while a library loads.
OPENREG_API void set_copy_kernel(CopyKernel kernel);

// Calls `copy` with the device whose current stream the copy belongs on: the source's, as in CUDA, or the only one. Between
// devices, both devices' current streams wait for each other before and after.
template <class Copy>
void on_copy_stream(const Tensor& self, const Tensor& source, const Copy& copy) {
  const c10::DeviceIndex device = (source.is_privateuseone() ? source : self).device().index();
  const c10::DeviceIndex peer = self.is_privateuseone() ? self.device().index() : device;
  const auto wait = [](c10::DeviceIndex waiting, c10::DeviceIndex other) {
    c10::openreg::wait_for_stream(c10::openreg::current_stream(waiting), c10::openreg::current_stream(other));
  };
  if (C10_UNLIKELY(peer != device)) {
    wait(device, peer);
  }
  copy(device);
  if (C10_UNLIKELY(peer != device)) {
    wait(peer, device);
  }
}

} // namespace at::openreg
