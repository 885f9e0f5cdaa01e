#pragma once

#include <ATen/core/Tensor.h>

// The kernels of the backend's own operators; the kernels custom_abs* belong to one operator, custom_abs. The operators
// are in the namespace torch.ops.openreg, except openreg_hypotenuse, which is in torch.ops.aten. Registered in
// ../OpenRegExtra.cpp.
namespace at::openreg {

Tensor custom_abs(const Tensor& input);
Tensor custom_abs_meta(const Tensor& input);
Tensor custom_abs_autograd(const Tensor& input);
Tensor custom_abs_autocast(const Tensor& input);
Tensor custom_abs_batched(const Tensor& input);
Tensor openreg_hypotenuse(const Tensor& self, const Tensor& other);
Tensor custom_autograd_fn_returns_self(const Tensor& input);
Tensor custom_autograd_fn_aliasing(const Tensor& input);

} // namespace at::openreg
