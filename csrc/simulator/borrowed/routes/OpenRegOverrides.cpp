#include <ATen/native/transformers/attention.h>
#include <ATen/ops/_native_batch_norm_legit_ops.h>
#include <ATen/ops/abs_ops.h>
#include <ATen/ops/gru_native.h>
#include <ATen/ops/gru_ops.h>
#include <ATen/ops/lstm_native.h>
#include <ATen/ops/lstm_ops.h>
#include <ATen/ops/nansum_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>
#include <ATen/ops/zeros.h>
#include <torch/library.h>

#include "simulator/borrowed/CpuKernel.h"
#include "simulator/borrowed/routes/Abs.h"
#include "simulator/borrowed/routes/Attention.h"
#include "simulator/borrowed/routes/Convolution.h"
#include "simulator/borrowed/routes/Normalization.h"
#include "simulator/borrowed/routes/RecurrentLayers.h"
#include "simulator/borrowed/routes/Route.h"
#include "simulator/borrowed/routes/Sum.h"

// Operators and stubs for which a backend registers its own kernel in place of PyTorch's default. Most of these kernels
// call the CPU's kernels.
namespace at::openreg {
namespace {

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("convolution_overrideable", routed(torch::CppFunction(&convolution_overrideable), "override"));
  m.impl(
      "convolution_backward_overrideable", routed(torch::CppFunction(&convolution_backward_overrideable), "override"));
  m.impl("_fused_sdp_choice", routed(torch::CppFunction(&_fused_sdp_choice), "override"));
  m.impl(
      "_scaled_dot_product_fused_attention_overrideable",
      routed(torch::CppFunction(&_scaled_dot_product_fused_attention_overrideable), "override"));
  m.impl(
      "_scaled_dot_product_fused_attention_overrideable_backward",
      routed(torch::CppFunction(&_scaled_dot_product_fused_attention_overrideable_backward), "override"));
}

// The CPU's kernels of these operators give other results than PyTorch expects of an accelerator (Normalization.h).
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("native_batch_norm", routed(torch::CppFunction(&BatchNorm<at::_ops::native_batch_norm>::call), "override"));
  m.impl(
      "_native_batch_norm_legit",
      routed(torch::CppFunction(&BatchNorm<at::_ops::_native_batch_norm_legit>::call), "override"));
}

// abs() has a composite kernel for all backends: it makes an empty tensor, which abs.out then resizes. The result is
// right, and the kernel here only saves the resize. It is an example: a backend's own kernel takes precedence over the
// composite kernel. PyTorch has a derivative formula for abs(), so the derivative stays. An operator whose composite
// kernel also serves as its derivative (CompositeImplicitAutograd) would need a kernel for AutogradPrivateUse1 too.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("abs", routed(torch::CppFunction(&Named<at::_ops::abs, &abs>::call), "override"));
}

// Each of these operators has two overloads, and the second takes packed sequences. The functions are PyTorch's
// compositions.
template <class Op>
using Composition = std::add_pointer_t<typename Op::schema>;
using Lstm = RecurrentLayers<at::_ops::lstm_input, Composition<at::_ops::lstm_input>(&at::native::lstm)>;
using Gru = RecurrentLayers<at::_ops::gru_input, Composition<at::_ops::gru_input>(&at::native::gru)>;

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("lstm.input", routed(torch::CppFunction(&Lstm::call), "override"));
  m.impl("gru.input", routed(torch::CppFunction(&Gru::call), "override"));
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("lstm.input", &Lstm::differentiable);
  m.impl("gru.input", &Gru::differentiable);
}

// The CPU's kernel refuses complex numbers (Sum.h).
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("nansum", routed(torch::CppFunction(&NanSum<at::_ops::nansum>::call), "override"));
  m.impl("nansum.out", routed(torch::CppFunction(&NanSum<at::_ops::nansum_out>::call), "override"));
}

// The position that each column of `indices` has in a contiguous tensor of `size`. The composite check of a sparse
// tensor that is said to be coalesced (torch.sparse.check_sparse_tensor_invariants) calls the device's stub to get
// these positions.
Tensor flatten_indices(const Tensor& indices, IntArrayRef size) {
  Tensor flat = at::zeros({indices.size(1)}, indices.options());
  for (size_t dim = 0; dim < size.size(); ++dim) {
    flat.mul_(size[dim]).add_(indices.select(0, static_cast<int64_t>(dim)));
  }
  return flat;
}

} // namespace
} // namespace at::openreg

namespace at::native {
// The declaration is a copy of one in native/sparse/SparseStubs.h, a header that PyTorch does not install.
using flatten_indices_fn = Tensor (*)(const Tensor&, IntArrayRef);
DECLARE_DISPATCH(flatten_indices_fn, flatten_indices_stub)
REGISTER_PRIVATEUSE1_DISPATCH(flatten_indices_stub, &at::openreg::flatten_indices)
} // namespace at::native

namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &at::openreg::_fused_sdp_choice)
} // namespace at::native
