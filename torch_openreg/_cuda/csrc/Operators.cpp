#include <ATen/ops/_convolution_native.h>
#include <ATen/ops/addmm_ops.h>
#include <ATen/ops/baddbmm_ops.h>
#include <ATen/ops/bmm_ops.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/mm_ops.h>
#include <torch/library.h>

#include "simulator/borrowed/CpuKernel.h"
#include "simulator/borrowed/routes/Convolution.h"

// These operators need kernels of their own because the device's type is cuda. If a tensor's is_cuda() is true,
// PyTorch's composite kernels of "_convolution" and "convolution_backward" call kernels that only a build with CUDA
// has. A kernel that is registered for the device takes precedence over the composite kernel. PyTorch has the other
// operators of this file for CUDA alone, so a CPU build has no kernel of them.
namespace at::openreg {
namespace {

Tensor _convolution(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups,
    bool benchmark,
    bool deterministic,
    bool cudnn_enabled,
    bool allow_tf32) {
  if (!input.is_cuda()) { // an error: PyTorch's kernel for a CPU input says which operand is on another device
    return at::native::_convolution(
        input,
        weight,
        bias,
        C10_AS_INTARRAYREF_SLOW(stride),
        C10_AS_INTARRAYREF_SLOW(padding),
        C10_AS_INTARRAYREF_SLOW(dilation),
        transposed,
        C10_AS_INTARRAYREF_SLOW(output_padding),
        groups.guard_int(__FILE__, __LINE__),
        benchmark,
        deterministic,
        cudnn_enabled,
        allow_tf32);
  }
  return convolution_overrideable(
      input, weight, bias, stride, padding, dilation, transposed, output_padding, std::move(groups));
}

// Calls Op, whose last argument is output_mask. The CPU's kernel may return more gradients than the mask asks for. They
// are dropped.
template <class Op, class Schema = typename Op::schema>
struct MaskedGradients;

template <class Op, class Gradients, class... Args>
struct MaskedGradients<Op, Gradients(Args...)> {
  static Gradients call(Args... args) {
    auto [input, weight, bias] = UnboxedCpuKernel<Op>::call(args...);
    const std::array<bool, 3> mask = std::get<sizeof...(Args) - 1>(std::tie(args...));
    return {mask[0] ? input : Tensor(), mask[1] ? weight : Tensor(), mask[2] ? bias : Tensor()};
  }
};

// There is neither cuDNN nor MIOpen, so ctc_loss() uses PyTorch's own kernel.
bool no_library_for_ctc_loss(const Tensor&, const Tensor&, IntArrayRef, IntArrayRef, int64_t) {
  return false;
}

bool no_library_for_ctc_loss_of_tensors(const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t) {
  return false;
}

// mm, bmm, addmm and baddbmm with out_dtype, which only CUDA has (Blas.cpp): products of float16 or bfloat16, summed
// and returned in float32. A product of two such numbers is exact in float32, so the factors are converted first. The
// dtype of the factors is accepted as out_dtype too.
void check_out_dtype(const Tensor& first, const Tensor& second, ScalarType out_dtype) {
  TORCH_CHECK(
      first.scalar_type() == second.scalar_type(),
      "input dtypes must be the same, got: input: ",
      first.scalar_type(),
      ", mat2: ",
      second.scalar_type());
  TORCH_CHECK(
      out_dtype == first.scalar_type() ||
          (out_dtype == kFloat && (first.scalar_type() == kHalf || first.scalar_type() == kBFloat16)),
      "out_dtype must be the same as input dtype or fp32 for fp16/bf16 inputs");
}

void check_out(const Tensor& out, ScalarType out_dtype) {
  TORCH_CHECK(out_dtype == out.scalar_type(), "out_dtype must be the same as the dtype of the provided out tensor");
}

template <class Op>
Tensor product(const Tensor& first, const Tensor& second, ScalarType out_dtype) {
  check_out_dtype(first, second, out_dtype);
  return Op::call(first.to(out_dtype), second.to(out_dtype));
}

template <class Op>
Tensor& product_out(const Tensor& first, const Tensor& second, ScalarType out_dtype, Tensor& out) {
  check_out_dtype(first, second, out_dtype);
  check_out(out, out_dtype);
  return Op::call(first.to(out_dtype), second.to(out_dtype), out);
}

template <class Op>
Tensor sum_and_product(
    const Tensor& self,
    const Tensor& first,
    const Tensor& second,
    ScalarType out_dtype,
    const Scalar& beta,
    const Scalar& alpha) {
  check_out_dtype(first, second, out_dtype);
  return Op::call(self.to(out_dtype), first.to(out_dtype), second.to(out_dtype), beta, alpha);
}

template <class Op>
Tensor& sum_and_product_out(
    const Tensor& self,
    const Tensor& first,
    const Tensor& second,
    ScalarType out_dtype,
    const Scalar& beta,
    const Scalar& alpha,
    Tensor& out) {
  check_out_dtype(first, second, out_dtype);
  check_out(out, out_dtype);
  return Op::call(self.to(out_dtype), first.to(out_dtype), second.to(out_dtype), beta, alpha, out);
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  // "convolution" keeps PyTorch's composite kernel. torch.jit.trace does not record "convolution" (DONT_RECORD_TRACE in
  // tools/autograd/gen_trace_type.py); it records "_convolution", which the composite kernel calls. With another kernel
  // for "convolution", a trace would lose the operator.
  m.impl("_convolution", _convolution);
  m.impl("convolution_backward", MaskedGradients<at::_ops::convolution_backward>::call);
  for (const char* name : {"_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"}) {
    m.impl(name, no_library_for_ctc_loss);
    m.impl((std::string(name) + ".Tensor").c_str(), no_library_for_ctc_loss_of_tensors);
  }
  m.impl("mm.dtype", product<at::_ops::mm>);
  m.impl("mm.dtype_out", product_out<at::_ops::mm_out>);
  m.impl("bmm.dtype", product<at::_ops::bmm>);
  m.impl("bmm.dtype_out", product_out<at::_ops::bmm_out>);
  m.impl("addmm.dtype", sum_and_product<at::_ops::addmm>);
  m.impl("addmm.dtype_out", sum_and_product_out<at::_ops::addmm_out>);
  m.impl("baddbmm.dtype", sum_and_product<at::_ops::baddbmm>);
  m.impl("baddbmm.dtype_out", sum_and_product_out<at::_ops::baddbmm_out>);
}

} // namespace
} // namespace at::openreg
