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

// Runs `copy` with the stream that the copy belongs on: the current one of the source's device, as in CUDA, or of the
// only device. Between devices, both devices' current streams wait for each other before and after.
template <class Copy>
void on_copy_stream(const Tensor& self, const Tensor& source, const Copy& copy) {
  const auto current = [](const Tensor& tensor) { return c10::openreg::current_stream(tensor.device().index()); };
  const Stream stream = current(source.is_privateuseone() ? source : self);
  const bool peers = self.is_privateuseone() && source.is_privateuseone() && self.device() != source.device();
  if (peers) {
    c10::openreg::wait_for_stream(stream, current(self));
  }
  copy(stream);
  if (peers) {
    c10::openreg::wait_for_stream(current(self), stream);
  }
}

} // namespace at::openreg
