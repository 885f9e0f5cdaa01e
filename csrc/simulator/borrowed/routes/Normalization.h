#pragma once

#include "simulator/borrowed/CpuKernel.h"

// Batch normalization that saves the statistics that it used, as CUDA's kernel does. The CPU's kernel saves no
// statistics if it uses the running statistics. PyTorch's meta kernels expect empty saved statistics only on the CPU.
namespace at::openreg {

using BatchNormResults = std::tuple<Tensor, Tensor, Tensor>; // the output, the mean, 1 / the standard deviation

// Replaces the empty statistics in `results` with the running mean and 1 / sqrt(running variance + eps).
BatchNormResults with_saved_statistics(
    BatchNormResults&& results, const Tensor& running_mean, const Tensor& running_var, double eps);

// Op(input, weight, bias, running_mean, running_var, training, momentum, eps)
template <class Op, class Schema = typename Op::schema>
struct BatchNorm;

template <class Op, class... Args>
struct BatchNorm<Op, BatchNormResults(Args...)> {
  static BatchNormResults call(Args... args) {
    auto results = UnboxedCpuKernel<Op>::call(args...);
    const auto& [input, weight, bias, running_mean, running_var, training, momentum, eps] =
        std::forward_as_tuple(args...);
    return training ? results
                    : with_saved_statistics(std::move(results), tensor_of(running_mean), tensor_of(running_var), eps);
  }

 private:
  static const Tensor& tensor_of(const Tensor& tensor) {
    return tensor;
  }
  static const Tensor& tensor_of(const std::optional<Tensor>& tensor) {
    return *tensor;
  }
};

} // namespace at::openreg
