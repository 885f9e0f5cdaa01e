#pragma once

#include <ATen/core/Tensor.h>

// "Overrideable" operators: PyTorch's composite convolution prepares the arguments and then calls these operators. A
// backend must supply kernels for them, because PyTorch has none: without the backend's kernels every convolution
// raises.
namespace at::openreg {

Tensor convolution_overrideable(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups);

std::tuple<Tensor, Tensor, Tensor> convolution_backward_overrideable(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups,
    std::array<bool, 3> output_mask);

} // namespace at::openreg
