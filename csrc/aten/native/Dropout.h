#pragma once

#include <ATen/core/Tensor.h>

// Dropout with the numbers of the CPU. PyTorch calls native_dropout on a PrivateUse1 device, while the CPU's dropout is a
// composite of other operators. These kernels draw the same numbers, from the device's generator, and round the same way.
namespace at::openreg {

std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double p, std::optional<bool> train);
Tensor native_dropout_backward(const Tensor& grad_output, const Tensor& mask, double scale);

} // namespace at::openreg
