#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <ATen/TensorIterator.h>
#include <ATen/TensorUtils.h>
#include <ATen/core/Reduction.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/add_meta.h>
#include <ATen/ops/add_ops.h>
#include <ATen/ops/addmm_meta.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/mm_meta.h>
#include <ATen/ops/mm_ops.h>
#include <ATen/ops/mse_loss_backward_ops.h>
#include <ATen/ops/mse_loss_ops.h>
#include <ATen/ops/mul_meta.h>
#include <ATen/ops/mul_ops.h>
#include <ATen/ops/relu_ops.h>
#include <ATen/ops/sum_meta.h>
#include <ATen/ops/sum_ops.h>
#include <ATen/ops/threshold_backward_meta.h>
#include <ATen/ops/threshold_backward_ops.h>
#include <ATen/ops/view_native.h>
#include <c10/core/DeviceGuard.h>
#include <torch/library.h>

#include "device.h"
#include "fallback.h"

// The operators that a multilayer perceptron and SGD need. To find the next operator to write, run a program: PyTorch's
// error names the missing operator, "Could not run 'aten::...'".
//
// Most operators have three forms, such as add, add_ and add.out. For an operator that native_functions.yaml calls
// structured, PyTorch makes the other two from the form with `out`, and registering that form is enough. But a program
// may call that form itself, with an `out` of any size, dtype and device. So such a kernel begins with prepare().
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

// LITERALINCLUDE START: RESIZE
// PyTorch resizes an `out` of the wrong size with this operator. The contents stay at the start of the memory.
const Tensor& resize_(const Tensor& self, IntArrayRef size, std::optional<at::MemoryFormat> format) {
  c10::TensorImpl* const impl = self.unsafeGetTensorImpl();
  c10::StorageImpl* const storage = impl->unsafe_storage().unsafeGetStorageImpl();
  at::detail::check_size_nonnegative(size);
  const size_t needed = at::detail::computeStorageNbytesContiguous(size, self.element_size(), self.storage_offset());
  if (needed > storage->nbytes() && c10::multiply_integers(size) != 0) {
    TORCH_CHECK(storage->resizable(), "Trying to resize storage that is not resizable");
    c10::Allocator* const allocator = c10::GetAllocator(c10::DeviceType::PrivateUse1);
    c10::DataPtr memory = allocator->allocate(needed);
    allocator->copy_data(memory.get(), storage->data(), storage->nbytes());
    storage->set_data_ptr_noswap(std::move(memory));
    storage->set_nbytes(needed);
  }
  if (self.sizes() != size) {
    impl->set_sizes_contiguous(size);
  }
  if (format) {
    impl->empty_tensor_restride(*format);
  }
  return self;
}
// LITERALINCLUDE END: RESIZE

// torch.load() and copies of storages make tensors with these operators. The tensor must lie within the storage.
Tensor& set_(Tensor& self, at::Storage source, int64_t offset, IntArrayRef size, IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), offset, size, stride);
  const std::vector<int64_t> contiguous = at::detail::defaultStrides(size);
  at::native::setStrided(self, size, stride.data() ? stride : IntArrayRef(contiguous), offset);
  return self;
}

Tensor& set_whole_(Tensor& self, at::Storage source) {
  const int64_t elements = static_cast<int64_t>(source.nbytes() / self.element_size());
  return set_(self, std::move(source), 0, elements, {});
}

// PyTorch asks this before `x.data = y`, with which Module.to() moves a parameter to the device. With another answer,
// Module.to() would replace the parameter, and an optimizer that was made before would train the old one.
bool has_compatible_shallow_copy_type(const Tensor& self, const Tensor& from) {
  const auto dense = [](const Tensor& x) { return x.layout() == at::kStrided && (x.is_privateuseone() || x.is_cpu()); };
  return dense(self) && dense(from);
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

// LITERALINCLUDE START: PREPARE
// PyTorch's structured kernels have two parts. meta() checks the operands, and computes the size, dtype and device of
// the output. impl() computes the values. `Meta` is PyTorch's class with meta(). This class holds `out` against what
// meta() computed, as PyTorch's own backends do.
template <class Meta>
struct Prepare final : Meta {
  explicit Prepare(const Tensor& out) : out(out) {}
  const Tensor& maybe_get_output(int64_t) override {
    return out;
  }
  void set_output_raw_strided(int64_t i, IntArrayRef size, IntArrayRef stride, at::TensorOptions options) override {
    TORCH_CHECK(
        out.dtype() == options.dtype(),
        "Expected out tensor to have dtype ",
        options.dtype(),
        ", but got ",
        out.dtype(),
        " instead");
    TORCH_CHECK(
        out.device() == options.device(),
        "Expected out tensor to have device ",
        options.device(),
        ", but got ",
        out.device(),
        " instead");
    at::native::resize_output(out, size); // does nothing if it has this size
    at::assert_no_internal_overlap(out);
    if constexpr (std::is_base_of_v<at::TensorIteratorBase, Meta>) {
      Meta::set_output_raw_strided(i, size, stride, options);
    }
  }
  const Tensor& out;
};

// To be called first in every kernel with `out`, with the other arguments. Without this call, the kernel would write
// past the end of a smaller `out`, and would use the memory of a CPU tensor as if it were the device's.
template <class Meta, class... Arguments>
void prepare(const Tensor& out, const Arguments&... arguments) {
  Prepare<Meta> prepare(out);
  prepare.meta(arguments...);
  check(out);
}
// LITERALINCLUDE END: PREPARE

// Calls kernel(pointer) with contiguous memory for all elements of `out`, which may have gaps.
template <class Kernel>
void write(const Tensor& out, const Kernel& kernel) {
  const Tensor result = out.is_contiguous() ? out : empty(out.sizes(), at::kFloat, {}, {}, {}, {});
  kernel(data(result));
  if (!result.is_same(out)) {
    copy_on_device(out, result);
  }
}

void compute(Binary operation, const Tensor& a, const Tensor& b, const Tensor& out) {
  const Tensor left = operand(a, out.sizes()), right = operand(b, out.sizes());
  write(out, [&](float* to) { binary(operation, to, data(left), data(right), out.numel()); });
}

Tensor& mul_out(const Tensor& self, const Tensor& other, Tensor& out) {
  prepare<at::meta::structured_mul_Tensor>(out, self, other);
  compute(Binary::Mul, self, other, out);
  return out;
}

Tensor& add_out(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  prepare<at::meta::structured_add_Tensor>(out, self, other, alpha);
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
  prepare<at::meta::structured_threshold_backward>(grad_input, grad, self, threshold);
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
  prepare<at::meta::structured_addmm>(out, self, a, b, beta, alpha);
  check(self);
  if (!out.is_same(self)) {
    out.copy_(self);
  }
  matmul(matrix(out), matrix(a), matrix(b), a.size(0), b.size(1), a.size(1), beta.toFloat(), alpha.toFloat());
  return out;
}

// LITERALINCLUDE START: MM
Tensor& mm_out(const Tensor& a, const Tensor& b, Tensor& out) {
  prepare<at::meta::structured_mm>(out, a, b);
  matmul(matrix(out), matrix(a), matrix(b), a.size(0), b.size(1), a.size(1), 0, 1);
  return out;
}
// LITERALINCLUDE END: MM

// The gradient of a bias, and sums over all elements: both sum over leading dimensions.
Tensor& sum_out(
    const Tensor& self, at::OptionalIntArrayRef dims, bool keep, std::optional<at::ScalarType> dtype, Tensor& out) {
  prepare<at::meta::structured_sum_dim_IntList>(out, self, dims, keep, dtype);
  for (int64_t i = 0; dims && i < static_cast<int64_t>(dims->size()); ++i) {
    TORCH_CHECK_NOT_IMPLEMENTED((*dims)[i] == i, "abacus sums over leading dimensions only.");
  }
  const Tensor in = operand(self, self.sizes());
  const int64_t columns = out.numel();
  write(out, [&](float* to) { sum_rows(to, data(in), columns ? in.numel() / columns : 0, columns); });
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
  const Tensor in = operand(self, self.sizes()), wanted = operand(target, self.sizes()), scale = operand(grad, {});
  Tensor grad_input = at::empty_like(in);
  abacus::mse_loss_backward(data(grad_input), data(scale), data(in), data(wanted), in.numel());
  return grad_input;
}

// ---- Registrations -----------------------------------------------------------------------------------------------

// A kernel that raises NotImplementedError before it writes anything. If there is a fallback, the fallback then runs the
// call, for example an addition of integers.
template <class Op, auto kernel, class = typename Op::schema>
struct Kernel;

template <class Op, auto kernel, class Return, class... Arguments>
struct Kernel<Op, kernel, Return(Arguments...)> {
  static Return call(Arguments... arguments) {
    try {
      return kernel(arguments...);
    } catch (const c10::NotImplementedError&) {
      if (fallback == nullptr) {
        throw;
      }
    }
    return at::native::call_fallback_fn<&run_fallback, Op>::call(arguments...);
  }
};

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty);
  m.impl("empty_strided", empty_strided);
  m.impl("as_strided", as_strided);
  m.impl("view", at::native::view);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage_storage_offset", set_);
  m.impl("set_.source_Storage", set_whole_);
  m.impl("_has_compatible_shallow_copy_type", has_compatible_shallow_copy_type);
  m.impl("_copy_from", copy_from);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("fill_.Scalar", fill_);
  m.impl("zero_", zero_);
  m.impl("add.out", Kernel<at::_ops::add_out, add_out>::call);
  m.impl("mul.out", Kernel<at::_ops::mul_out, mul_out>::call);
  m.impl("relu", Kernel<at::_ops::relu, relu>::call);
  m.impl(
      "threshold_backward.grad_input", Kernel<at::_ops::threshold_backward_grad_input, threshold_backward_out>::call);
  m.impl("addmm.out", Kernel<at::_ops::addmm_out, addmm_out>::call);
  m.impl("mm.out", Kernel<at::_ops::mm_out, mm_out>::call);
  m.impl("sum.IntList_out", Kernel<at::_ops::sum_IntList_out, sum_out>::call);
  m.impl("mse_loss", Kernel<at::_ops::mse_loss, mse_loss>::call);
  m.impl("mse_loss_backward", Kernel<at::_ops::mse_loss_backward, mse_loss_backward>::call);
}

TORCH_LIBRARY_IMPL(aten, Conjugate, m) {
  m.impl("_copy_from", copy_from_lazy);
}

TORCH_LIBRARY_IMPL(aten, Negative, m) {
  m.impl("_copy_from", copy_from_lazy);
}

} // namespace
} // namespace abacus
