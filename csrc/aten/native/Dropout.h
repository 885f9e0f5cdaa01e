#pragma once

#include <ATen/core/Tensor.h>

// Dropout as the CPU computes it. PyTorch sends a PrivateUse1 device to native_dropout, the CPU's own dropout is a
// composite: this one draws the same numbers and rounds the same way, from the device's generator.
namespace at::openreg {

std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double p, std::optional<bool> train);
Tensor native_dropout_backward(const Tensor& grad_output, const Tensor& mask, double scale);

} // namespace at::openreg
