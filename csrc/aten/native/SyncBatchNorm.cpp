#include "aten/native/SyncBatchNorm.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/batch_norm_backward_elemt_ops.h>
#include <ATen/ops/batch_norm_backward_reduce_ops.h>
#include <ATen/ops/batch_norm_elemt_ops.h>
#include <ATen/ops/batch_norm_gather_stats_ops.h>
#include <ATen/ops/batch_norm_gather_stats_with_counts_ops.h>
#include <ATen/ops/full.h>
#include <ATen/ops/var_mean.h>
#include <torch/library.h>

#include "aten/native/DeviceCheck.h"

namespace at::openreg {
namespace {

ScalarType accumulation_type(const Tensor& input) {
  return isReducedFloatingType(input.scalar_type()) ? kFloat : input.scalar_type();
}

std::vector<int64_t> all_but_channels(const Tensor& input) {
  TORCH_CHECK(input.dim() >= 2, "Expected an input of at least 2 dimensions, but got ", input.dim());
  std::vector<int64_t> dims{0};
  for (int64_t dim = 2; dim < input.dim(); ++dim) {
    dims.push_back(dim);
  }
  return dims;
}

// Reshapes `values`, which has one value for each channel, so that the result can be broadcast to the shape of `input`.
// The result has the dtype in which `input` is accumulated.
Tensor per_channel(const Tensor& values, const Tensor& input) {
  std::vector<int64_t> shape(input.dim(), 1);
  shape[1] = -1;
  return values.to(accumulation_type(input)).view(shape);
}

Tensor scale_of(const Tensor& invstd, const std::optional<Tensor>& weight) {
  return weight && weight->defined() ? invstd * weight->to(invstd.scalar_type()) : invstd;
}

} // namespace

std::tuple<Tensor, Tensor> batch_norm_stats(const Tensor& input, double eps) {
  const Tensor x = input.to(accumulation_type(input));
  const auto dims = all_but_channels(input);
  const auto [variance, mean] = at::var_mean(x, dims, /*correction=*/0);
  return {mean, (variance + eps).rsqrt()};
}

Tensor batch_norm_elemt(
    const Tensor& input,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    const Tensor& mean,
    const Tensor& invstd,
    double /*eps*/) {
  check_devices<at::_ops::batch_norm_elemt>(input, weight, bias, mean, invstd);
  Tensor result = (input - per_channel(mean, input)) * per_channel(scale_of(invstd, weight), input);
  if (bias && bias->defined()) {
    result += per_channel(*bias, input);
  }
  return result.to(input.scalar_type());
}

Tensor& batch_norm_elemt_out(
    const Tensor& input,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    const Tensor& mean,
    const Tensor& invstd,
    double eps,
    Tensor& out) {
  check_devices<at::_ops::batch_norm_elemt_out>(input, weight, bias, mean, invstd, eps, out);
  return out.copy_(openreg::batch_norm_elemt(input, weight, bias, mean, invstd, eps));
}

std::tuple<Tensor, Tensor> batch_norm_gather_stats_with_counts(
    const Tensor& input,
    const Tensor& mean,
    const Tensor& invstd,
    const std::optional<Tensor>& running_mean,
    const std::optional<Tensor>& running_var,
    double momentum,
    double eps,
    const Tensor& counts) {
  check_devices<at::_ops::batch_norm_gather_stats_with_counts>(
      input, mean, invstd, running_mean, running_var, momentum, eps, counts);
  // Row i of `mean` and of `invstd` has the statistics of one rank, which has counts[i] elements for each channel.
  const Tensor weights = counts.to(mean.scalar_type()).unsqueeze(1);
  const Tensor total = weights.sum();
  const Tensor all_mean = (mean * weights).sum(0) / total;
  const Tensor variances = invstd.pow(-2) - eps;
  const Tensor variance = ((variances + (mean - all_mean).square()) * weights).sum(0) / total;
  if (running_mean && running_mean->defined()) {
    running_mean->mul_(1 - momentum).add_(all_mean * momentum);
  }
  if (running_var && running_var->defined()) {
    running_var->mul_(1 - momentum).add_(variance * (total / (total - 1)) * momentum);
  }
  return {all_mean, (variance + eps).rsqrt()};
}

std::tuple<Tensor, Tensor> batch_norm_gather_stats(
    const Tensor& input,
    const Tensor& mean,
    const Tensor& invstd,
    const std::optional<Tensor>& running_mean,
    const std::optional<Tensor>& running_var,
    double momentum,
    double eps,
    int64_t count) {
  check_devices<at::_ops::batch_norm_gather_stats>(input, mean, invstd, running_mean, running_var);
  const Tensor counts = at::full({mean.size(0)}, count, mean.options());
  return openreg::batch_norm_gather_stats_with_counts(
      input, mean, invstd, running_mean, running_var, momentum, eps, counts);
}

std::tuple<Tensor, Tensor, Tensor, Tensor> batch_norm_backward_reduce(
    const Tensor& grad_out,
    const Tensor& input,
    const Tensor& mean,
    const Tensor& invstd,
    const std::optional<Tensor>& weight,
    bool input_g,
    bool weight_g,
    bool bias_g) {
  check_devices<at::_ops::batch_norm_backward_reduce>(grad_out, input, mean, invstd, weight);
  const auto dims = all_but_channels(input);
  const Tensor dy = grad_out.to(accumulation_type(input));
  const Tensor sum_dy = dy.sum(dims);
  const Tensor sum_dy_xmu = (dy * (input - per_channel(mean, input))).sum(dims);
  const ScalarType type = weight && weight->defined() ? weight->scalar_type() : input.scalar_type();
  return {
      input_g ? sum_dy : Tensor(),
      input_g ? sum_dy_xmu : Tensor(),
      weight_g ? (sum_dy_xmu * invstd).to(type) : Tensor(),
      bias_g ? sum_dy.to(type, /*non_blocking=*/false, /*copy=*/true) : Tensor()};
}

Tensor batch_norm_backward_elemt(
    const Tensor& grad_out,
    const Tensor& input,
    const Tensor& mean,
    const Tensor& invstd,
    const std::optional<Tensor>& weight,
    const Tensor& sum_dy,
    const Tensor& sum_dy_xmu,
    const Tensor& count) {
  check_devices<at::_ops::batch_norm_backward_elemt>(grad_out, input, mean, invstd, weight, sum_dy, sum_dy_xmu, count);
  const Tensor total = count.sum().to(accumulation_type(input));
  const Tensor projection = per_channel(invstd.square() * (sum_dy_xmu / total), input);
  const Tensor gradient =
      (grad_out - per_channel(sum_dy / total, input)) - (input - per_channel(mean, input)) * projection;
  return (gradient * per_channel(scale_of(invstd, weight), input)).to(input.scalar_type());
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("batch_norm_stats", batch_norm_stats);
  m.impl("batch_norm_elemt", batch_norm_elemt);
  m.impl("batch_norm_elemt.out", batch_norm_elemt_out);
  m.impl("batch_norm_gather_stats", batch_norm_gather_stats);
  m.impl("batch_norm_gather_stats_with_counts", batch_norm_gather_stats_with_counts);
  m.impl("batch_norm_backward_reduce", batch_norm_backward_reduce);
  m.impl("batch_norm_backward_elemt", batch_norm_backward_elemt);
}

} // namespace at::openreg
