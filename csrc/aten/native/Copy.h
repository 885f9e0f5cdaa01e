#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegStream.h"

// The copies that copy_ (Minimal.h) leaves to a kernel.
namespace at::openreg {

// Makes every copy within one device, and every other copy that one memcpy cannot make, because it converts the dtype,
// rearranges elements, resolves the lazy conj and neg bits, or copies a tensor that consists of several tensors
// (Layouts.h). Each operand is on the CPU or on a device of this backend, and at least one of them is on a device of
// this backend.
using CopyKernel = void (*)(Tensor& self, const Tensor& source, bool non_blocking);

// Sets the copy kernel. Without a copy kernel, copy_ makes only the copies that are one memcpy, and refuses every other
// copy. A library calls this function from a static initializer: no lock protects the setting.
OPENREG_API void set_copy_kernel(CopyKernel kernel);

// Whether a copy is one block of bytes: the tensors have the same dtype, sizes and lazy bits, and both are contiguous.
bool is_block(const Tensor& self, const Tensor& source);

// Calls `copy` with the device on whose current stream the copy belongs: the device of `source`, as in CUDA, or the
// device of `self` if `source` is on the CPU. If the copy is between two devices, that stream first waits for the
// current stream of the other device, and the other stream then waits for the copy.
template <class Copy>
void on_copy_stream(const Tensor& self, const Tensor& source, const Copy& copy) {
  const c10::DeviceIndex device = (is_device_tensor(source) ? source : self).device().index();
  const c10::DeviceIndex peer = is_device_tensor(self) ? self.device().index() : device;
  const auto wait = [](c10::DeviceIndex waiting, c10::DeviceIndex other) {
    c10::openreg::wait_for_stream(
        c10::openreg::getCurrentOpenRegStream(waiting), c10::openreg::getCurrentOpenRegStream(other));
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
