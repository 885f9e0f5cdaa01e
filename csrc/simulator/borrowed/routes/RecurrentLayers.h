#pragma once

#include <ATen/core/LegacyTypeDispatch.h>

#include <array>

#include "simulator/borrowed/CpuKernel.h"

// The layers of LSTM and GRU networks in inference.
//
// PyTorch composes lstm() and gru() of other operators: on the CPU, of oneDNN's fused LSTM layer, and on this device, of
// several kernels for each time step. So in inference the CPU's composition runs as one kernel of the device, as on CUDA
// cuDNN's does. The results are the CPU's bit for bit, but for the rounding of products with a transposed input
// (`batch_first`) where there is no fused layer: matmul() folds its operands if the weight requires a gradient, which an
// alias never does.
//
// Rule: a call is one kernel only if it computes no gradient, draws no random number and rounds no operand, and if the
// device executes inline: no meta kernel tells the shapes of a queued call. Every other call is composed of operators
// of the device, among them the cells of aten/native/Recurrent.h.
namespace at::openreg {

using RecurrentOperands = std::array<TensorList, 3>; // input, hidden state, parameters

// Whether autograd, a dispatch mode or a wrapper of tensors must see the operators that a call is composed of.
bool needs_composition(const RecurrentOperands& operands);
// Whether the rule above allows a call without gradients and random numbers to be one kernel.
bool may_be_one_kernel(const RecurrentOperands& operands);

template <class Op, auto composite, class Schema = typename Op::schema>
struct RecurrentLayers;

template <class Op, auto composite, class Result, class Hidden, class... Options>
struct RecurrentLayers<
    Op,
    composite,
    Result(const Tensor&, Hidden, TensorList, bool, int64_t, double, bool, Options...)> {
  // The kernel for PrivateUse1.
  static Result call(
      const Tensor& input,
      Hidden hidden,
      TensorList params,
      bool has_biases,
      int64_t layers,
      double dropout,
      bool train,
      Options... options) {
    const bool draws = train && dropout != 0;
    if (!draws && may_be_one_kernel({input, hidden, params})) {
      return UnboxedCpuKernel<Op>::call(input, hidden, params, has_biases, layers, dropout, train, options...);
    }
    return composite(input, hidden, params, has_biases, layers, dropout, train, options...);
  }

  // The kernel for AutogradPrivateUse1. Without it an operator that has a kernel for PrivateUse1 has no derivative,
  // because PyTorch derives lstm() and gru() through the operators that they are composed of.
  static Result differentiable(
      const Tensor& input,
      Hidden hidden,
      TensorList params,
      bool has_biases,
      int64_t layers,
      double dropout,
      bool train,
      Options... options) {
    if (needs_composition({input, hidden, params})) {
      return composite(input, hidden, params, has_biases, layers, dropout, train, options...);
    }
    const AutoDispatchBelowADInplaceOrView below;
    return Op::redispatch(identity.keys, input, hidden, params, has_biases, layers, dropout, train, options...);
  }
};

} // namespace at::openreg
