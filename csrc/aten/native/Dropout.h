#pragma once

#include <ATen/core/Tensor.h>

// Dropout with the same results as on the CPU. PyTorch calls native_dropout on a PrivateUse1 device, but composes the
// CPU's dropout of other operators. These kernels draw the same numbers as the CPU's dropout, from the device's
// generator, and round in the same way.
namespace at::openreg {

std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double p, std::optional<bool> train);
Tensor native_dropout_backward(const Tensor& grad_output, const Tensor& mask, double scale);

} // namespace at::openreg
