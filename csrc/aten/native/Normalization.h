#pragma once

#include <ATen/core/Tensor.h>

// Batch normalisation that saves the statistics that it used, as CUDA's does. The CPU's kernel saves none where it uses
// the running statistics, and PyTorch's meta kernels expect that of the CPU alone.
namespace at::openreg {

std::tuple<Tensor, Tensor, Tensor> native_batch_norm(
    const Tensor& input,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    const std::optional<Tensor>& running_mean,
    const std::optional<Tensor>& running_var,
    bool training,
    double momentum,
    double eps);

std::tuple<Tensor, Tensor, Tensor> _native_batch_norm_legit(
    const Tensor& input,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    Tensor& running_mean,
    Tensor& running_var,
    bool training,
    double momentum,
    double eps);

} // namespace at::openreg
