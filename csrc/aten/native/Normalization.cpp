#include "Normalization.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_native_batch_norm_legit_ops.h>
#include <ATen/ops/native_batch_norm_ops.h>

#include "OnCpu.h"

namespace at::openreg {
namespace {

using Results = std::tuple<Tensor, Tensor, Tensor>; // the output, the saved mean, the saved 1 / standard deviation

// As aten/src/ATen/native/cuda/Normalization.cu, batch_norm_cuda_out.
Results with_saved_statistics(Results&& results, const Tensor& running_mean, const Tensor& running_var, double eps) {
  auto& [output, mean, inverse_deviation] = results;
  mean = running_mean.to(mean.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  inverse_deviation = (running_var.to(mean.scalar_type()) + eps).rsqrt_();
  return std::move(results);
}

} // namespace

Results native_batch_norm(
    const Tensor& input,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    const std::optional<Tensor>& running_mean,
    const std::optional<Tensor>& running_var,
    bool training,
    double momentum,
    double eps) {
  auto results = UnboxedOnCpu<_ops::native_batch_norm>::call(
      input, weight, bias, running_mean, running_var, training, momentum, eps);
  return training ? results : with_saved_statistics(std::move(results), *running_mean, *running_var, eps);
}

Results _native_batch_norm_legit(
    const Tensor& input,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    Tensor& running_mean,
    Tensor& running_var,
    bool training,
    double momentum,
    double eps) {
  auto results = UnboxedOnCpu<_ops::_native_batch_norm_legit>::call(
      input, weight, bias, running_mean, running_var, training, momentum, eps);
  return training ? results : with_saved_statistics(std::move(results), running_mean, running_var, eps);
}

} // namespace at::openreg
