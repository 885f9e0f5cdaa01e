#pragma once

#include <ATen/core/Tensor.h>

// "Overrideable" operators: PyTorch's composite convolution and attention prepare their arguments and then call these,
// which a backend must supply. There is no default: without them every convolution raises.
namespace at::openreg {

Tensor convolution_overrideable(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups);

std::tuple<Tensor, Tensor, Tensor> convolution_backward_overrideable(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups,
    std::array<bool, 3> output_mask);

} // namespace at::openreg
