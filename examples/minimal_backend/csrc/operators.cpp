#include <ATen/EmptyTensor.h>
#include <ATen/core/Reduction.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "device.h"

// The operators that a multilayer perceptron and SGD need. To find the next operator to write, run a program: PyTorch's
// error names the missing operator, "Could not run 'aten::...'". Most operators have three forms, such as add, add_ and
// add.out. For an operator that native_functions.yaml calls structured, PyTorch makes the other two from the form with
// `out`, and registering that form is enough.
namespace abacus {
namespace {

using at::IntArrayRef;
using at::Scalar;
using at::Tensor;

constexpr c10::DispatchKeySet kKeys(c10::DispatchKey::PrivateUse1);

// ---- Tensors without values --------------------------------------------------------------------------------------

c10::Allocator* allocator_of(std::optional<at::Device> device) {
  const c10::OptionalDeviceGuard guard(device); // refuses a device that is not there
  return c10::GetAllocator(c10::DeviceType::PrivateUse1);
}

Tensor empty(
    IntArrayRef size,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>,
    std::optional<at::Device> device,
    std::optional<bool>,
    std::optional<at::MemoryFormat> format) {
  c10::Allocator* allocator = allocator_of(device);
  return at::detail::empty_generic(size, allocator, kKeys, c10::dtype_or_default(dtype), format);
}

Tensor empty_strided(
    IntArrayRef size,
    IntArrayRef stride,
    std::optional<at::ScalarType> dtype,
    std::optional<at::Layout>,
    std::optional<at::Device> device,
    std::optional<bool>) {
  c10::Allocator* allocator = allocator_of(device);
  return at::detail::empty_strided_generic(size, stride, allocator, kKeys, c10::dtype_or_default(dtype));
}

Tensor as_strided(const Tensor& self, IntArrayRef size, IntArrayRef stride, std::optional<int64_t> offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, offset);
}

// ---- Copies ------------------------------------------------------------------------------------------------------

// Copies between tensors of equal sizes and dtypes, in any layout, on the device.
void copy_on_device(const Tensor& to, const Tensor& from) {
  copy_strided(
      to.mutable_data_ptr(),
      to.strides().data(),
      from.const_data_ptr(),
      from.strides().data(),
      to.sizes().data(),
      static_cast<int>(to.dim()),
      to.element_size());
}

// copy_() in all directions. The host converts dtypes. Each side makes its own source contiguous before the transfer,
// and spreads the data into its own non-contiguous tensor after the transfer. So only contiguous bytes cross the bus.
Tensor copy_from(const Tensor& source, const Tensor& to, bool /*non_blocking*/) {
  const Tensor from = source.expand_as(to);
  if (to.numel() == 0) {
    return to;
  }
  if (to.is_privateuseone() && from.is_privateuseone() && to.scalar_type() == from.scalar_type()) {
    copy_on_device(to, from);
  } else if (from.is_privateuseone()) { // to the host, or through the host to another dtype
    const Tensor piece = empty(from.sizes(), from.scalar_type(), {}, {}, {}, {});
    copy_on_device(piece, from);
    const Tensor host = at::empty(from.sizes(), from.options().device(c10::kCPU));
    copy_to_host(host.mutable_data_ptr(), piece.const_data_ptr(), piece.nbytes());
    to.copy_(host);
  } else {
    const Tensor host = from.to(to.scalar_type()).contiguous();
    const Tensor piece = empty(host.sizes(), host.scalar_type(), {}, {}, {}, {});
    copy_to_device(piece.mutable_data_ptr(), host.const_data_ptr(), host.nbytes());
    copy_on_device(to, piece);
  }
  return to;
}

// PyTorch's fallback for such a tensor clones it first, and clone() calls _copy_from again, without an end.
Tensor copy_from_lazy(const Tensor&, const Tensor&, bool /*non_blocking*/) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      false, "abacus cannot copy a lazily conjugated or negated tensor, such as x.conj(): copy x to the CPU first");
}

// PyTorch calls this operator for item(), bool(), int() and float() of a tensor.
Scalar local_scalar_dense(const Tensor& self) {
  return self.cpu().item();
}

Tensor& fill_(Tensor& self, const Scalar& value) {
  return self.copy_(at::empty({}, self.options().device(c10::kCPU)).fill_(value));
}

Tensor& zero_(Tensor& self) {
  return fill_(self, 0);
}

// ---- Arithmetic --------------------------------------------------------------------------------------------------

void check(const Tensor& tensor) {
  TORCH_CHECK(
      tensor.is_privateuseone(),
      "Expected all tensors to be on the same device, but found at least two devices, abacus:0 and ",
      tensor.device(),
      "!");
  TORCH_CHECK_NOT_IMPLEMENTED(
      tensor.scalar_type() == at::kFloat, "abacus computes in float32, not in ", tensor.dtype());
}

// An operand in the form that all kernels but matmul take: expanded to `size`, and contiguous. A number comes as a CPU
// tensor without dimensions. Any other tensor of another device is refused, as everywhere in PyTorch.
Tensor operand(const Tensor& tensor, IntArrayRef size) {
  if (tensor.is_cpu() && tensor.dim() == 0) {
    return empty(size, at::kFloat, {}, {}, {}, {}).fill_(tensor.item());
  }
  check(tensor);
  return tensor.expand(size).contiguous();
}

float* data(const Tensor& tensor) {
  return tensor.mutable_data_ptr<float>();
}

void compute(Binary operation, const Tensor& a, const Tensor& b, const Tensor& out) {
  const Tensor left = operand(a, out.sizes()), right = operand(b, out.sizes());
  const Tensor result = out.is_contiguous() ? out : empty(out.sizes(), at::kFloat, {}, {}, {}, {});
  binary(operation, data(result), data(left), data(right), out.numel());
  if (!result.is_same(out)) {
    copy_on_device(out, result);
  }
}

Tensor& mul_out(const Tensor& self, const Tensor& other, Tensor& out) {
  compute(Binary::Mul, self, other, out);
  return out;
}

Tensor& add_out(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  Tensor scaled = operand(other, out.sizes());
  if (alpha.toDouble() != 1) {
    scaled = scaled.mul(alpha);
  }
  compute(Binary::Add, self, scaled, out);
  return out;
}

Tensor relu(const Tensor& self) {
  Tensor out = empty(self.sizes(), at::kFloat, {}, {}, {}, {});
  compute(Binary::Relu, self, self, out);
  return out;
}

// The derivative of relu(). PyTorch passes the output of relu() as `self`.
Tensor& threshold_backward_out(const Tensor& grad, const Tensor& self, const Scalar& threshold, Tensor& grad_input) {
  TORCH_CHECK_NOT_IMPLEMENTED(threshold.toDouble() == 0, "abacus has the threshold of relu() only.");
  compute(Binary::ReluBackward, grad, self, grad_input);
  return grad_input;
}

Matrix matrix(const Tensor& tensor) {
  check(tensor);
  return {data(tensor), tensor.stride(0), tensor.stride(1)};
}

Tensor& addmm_out(
    const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha, Tensor& out) {
  if (!out.is_same(self)) {
    out.copy_(self);
  }
  matmul(matrix(out), matrix(a), matrix(b), a.size(0), b.size(1), a.size(1), beta.toFloat(), alpha.toFloat());
  return out;
}

Tensor& mm_out(const Tensor& a, const Tensor& b, Tensor& out) {
  matmul(matrix(out), matrix(a), matrix(b), a.size(0), b.size(1), a.size(1), 0, 1);
  return out;
}

// The gradient of a bias, and sums over all elements: both sum over leading dimensions.
Tensor& sum_out(const Tensor& self, at::OptionalIntArrayRef dims, bool, std::optional<at::ScalarType>, Tensor& out) {
  for (int64_t i = 0; dims && i < static_cast<int64_t>(dims->size()); ++i) {
    TORCH_CHECK_NOT_IMPLEMENTED((*dims)[i] == i, "abacus sums over leading dimensions only.");
  }
  sum_rows(data(out), data(operand(self, self.sizes())), out.numel() ? self.numel() / out.numel() : 0, out.numel());
  return out;
}

// ---- The loss ----------------------------------------------------------------------------------------------------

void check_mean(int64_t reduction) {
  TORCH_CHECK_NOT_IMPLEMENTED(reduction == at::Reduction::Mean, "abacus has the mean of a loss only.");
}

Tensor mse_loss(const Tensor& self, const Tensor& target, int64_t reduction) {
  check_mean(reduction);
  Tensor out = empty({}, at::kFloat, {}, {}, {}, {});
  abacus::mse_loss(data(out), data(operand(self, self.sizes())), data(operand(target, self.sizes())), self.numel());
  return out;
}

Tensor mse_loss_backward(const Tensor& grad, const Tensor& self, const Tensor& target, int64_t reduction) {
  check_mean(reduction);
  const Tensor in = operand(self, self.sizes()), wanted = operand(target, self.sizes());
  Tensor grad_input = at::empty_like(in);
  abacus::mse_loss_backward(data(grad_input), data(grad), data(in), data(wanted), in.numel());
  return grad_input;
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", at::native::view);
  m.impl("_copy_from", copy_from);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("fill_.Scalar", fill_);
  m.impl("zero_", zero_);
  m.impl("add.out", add_out);
  m.impl("mul.out", mul_out);
  m.impl("relu", relu);
  m.impl("threshold_backward.grad_input", threshold_backward_out);
  m.impl("addmm.out", addmm_out);
  m.impl("mm.out", mm_out);
  m.impl("sum.IntList_out", sum_out);
  m.impl("mse_loss", mse_loss);
  m.impl("mse_loss_backward", mse_loss_backward);
}

TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", copy_from_lazy);
}

TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", copy_from_lazy);
}

} // namespace
} // namespace abacus
