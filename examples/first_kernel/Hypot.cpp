// A kernel of your own for an operator of PyTorch. Copy this file to csrc/aten/native, and build: every source file below
// csrc is compiled, and no other file has to change. Until then, hypot() runs the CPU's kernel.
#include <ATen/ops/empty_like.h>
#include <openreg_launch.h>
#include <torch/library.h>

#include <cmath>

#include "runtime/OpenRegException.h"
#include "runtime/OpenRegStream.h"

namespace at::openreg {
namespace {

// Runs on the device.
void compute(const float* x, const float* y, float* to, int64_t size) {
  x = static_cast<const float*>(orGetKernelPointer(x));
  y = static_cast<const float*>(orGetKernelPointer(y));
  to = static_cast<float*>(orGetKernelPointer(to));
  for (int64_t i = 0; i < size; ++i) {
    to[i] = std::hypot(x[i], y[i]);
  }
}

// Runs on the host: checks the operands, allocates the result, and launches the kernel on the current stream.
Tensor hypot(const Tensor& x, const Tensor& y) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      x.scalar_type() == kFloat && y.scalar_type() == kFloat && x.sizes() == y.sizes(),
      "hypot of two float32 tensors of one shape only");
  TORCH_CHECK(y.device() == x.device(), "Expected all tensors to be on the same device");
  const Tensor a = x.contiguous(), b = y.contiguous(), result = at::empty_like(a);
  const int64_t size = a.numel();
  const auto* from = a.const_data_ptr<float>();
  const auto* other = b.const_data_ptr<float>();
  auto* to = result.mutable_data_ptr<float>();
  const orKernelInfo info{"aten::hypot", {orReads(from, size), orReads(other, size), orWrites(to, size)}};
  const auto stream = c10::openreg::getCurrentOpenRegStream(x.device().index()).stream();
  OPENREG_CHECK(orLaunchKernel(stream, info, compute, from, other, to, size));
  return result;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("hypot", hypot);
}

} // namespace
} // namespace at::openreg
