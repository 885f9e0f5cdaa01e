#include <torch/library.h>

#include "aten/native/Custom.h"
#include "aten/native/Dropout.h"
#include "aten/native/Elementwise.h"
#include "aten/native/Recurrent.h"

// Registers the device's own kernels for operators beyond the minimal set. Each block below is one kind of
// registration.
namespace at::openreg {
namespace {

// Operators whose CPU kernel this device cannot use or should not use. The fused cells have no CPU kernel. dropout()
// calls native_dropout on this device, but not on the CPU, and the CPU kernel of native_dropout gives other numbers
// than dropout() on the CPU. With that kernel, one seed would give different results on the two devices. zero_ is
// faster as a memset if the tensor is small.
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_thnn_fused_lstm_cell", _thnn_fused_lstm_cell);
  m.impl("_thnn_fused_lstm_cell_backward_impl", _thnn_fused_lstm_cell_backward_impl);
  m.impl("_thnn_fused_gru_cell", _thnn_fused_gru_cell);
  m.impl("_thnn_fused_gru_cell_backward", _thnn_fused_gru_cell_backward);
  m.impl("zero_", zero_);
  m.impl("native_dropout", native_dropout);
  m.impl("native_dropout_backward", native_dropout_backward);
}

// LITERALINCLUDE START: CUSTOM OPERATOR SCHEMA
TORCH_LIBRARY(openreg, m) {
  m.def("custom_abs(Tensor input) -> Tensor");
  m.def("custom_autograd_fn_returns_self(Tensor input) -> Tensor");
  m.def("custom_autograd_fn_aliasing(Tensor(a) input) -> Tensor(a)");
}
// LITERALINCLUDE END: CUSTOM OPERATOR SCHEMA

TORCH_LIBRARY_IMPL(openreg, PrivateUse1, m) {
  m.impl("custom_abs", custom_abs);
}

TORCH_LIBRARY_IMPL(openreg, Meta, m) {
  m.impl("custom_abs", custom_abs_meta);
}

TORCH_LIBRARY_IMPL(openreg, AutogradPrivateUse1, m) {
  m.impl("custom_abs", custom_abs_autograd);
}

TORCH_LIBRARY_IMPL(openreg, AutocastPrivateUse1, m) {
  m.impl("custom_abs", custom_abs_autocast);
}

TORCH_LIBRARY_IMPL(openreg, FuncTorchBatched, m) {
  m.impl("custom_abs", custom_abs_batched);
}

// Adds an operator to a namespace that another library owns: `aten` belongs to PyTorch. The prefix `openreg_` prevents
// a collision with an operator that a later version of PyTorch adds. The kernel only calls other operators of PyTorch.
// So it needs no other registration: backward, meta, autocast and vmap work because they work for those operators.
TORCH_LIBRARY_FRAGMENT(aten, m) {
  m.def("openreg_hypotenuse(Tensor self, Tensor other) -> Tensor", openreg_hypotenuse);
}

// LITERALINCLUDE START: TORCH.AUTOGRAD.FUNCTION
TORCH_LIBRARY_IMPL(openreg, Autograd, m) {
  m.impl("custom_autograd_fn_aliasing", custom_autograd_fn_aliasing);
  m.impl("custom_autograd_fn_returns_self", custom_autograd_fn_returns_self);
}
// LITERALINCLUDE END: TORCH.AUTOGRAD.FUNCTION

} // namespace
} // namespace at::openreg
