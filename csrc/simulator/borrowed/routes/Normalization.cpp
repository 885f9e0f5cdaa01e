#include "simulator/borrowed/routes/Normalization.h"

#include <ATen/TensorOperators.h>

namespace at::openreg {

// Follows batch_norm_cuda_out in aten/src/ATen/native/cuda/Normalization.cu.
BatchNormResults with_saved_statistics(
    BatchNormResults&& results, const Tensor& running_mean, const Tensor& running_var, double eps) {
  auto& [output, mean, inverse_deviation] = results;
  mean = running_mean.to(mean.scalar_type(), /*non_blocking=*/false, /*copy=*/true);
  inverse_deviation = (running_var.to(mean.scalar_type()) + eps).rsqrt_();
  return std::move(results);
}

} // namespace at::openreg
