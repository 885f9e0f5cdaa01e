#include "simulator/borrowed/routes/Convolution.h"

#include <ATen/ops/_convolution_ops.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <ATen/ops/convolution_backward_overrideable_ops.h>
#include <ATen/ops/convolution_ops.h>
#include <ATen/ops/convolution_overrideable_ops.h>

#include "simulator/borrowed/CpuKernel.h"

namespace at::openreg {
namespace {

constexpr c10::DispatchKeySet kCpu(c10::DispatchKey::CPU);

// The check that PyTorch makes for its own backends (aten/src/ATen/native/Convolution.cpp), with PyTorch's message.
void check_same_type(const Tensor& input, const Tensor& other, const char* name) {
  TORCH_CHECK(
      !other.defined() || input.options().type_equal(other.options()),
      "Input type (",
      input.toString(),
      ") and ",
      name,
      " type (",
      other.toString(),
      ") should be the same");
}

} // namespace

Tensor convolution_overrideable(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups) {
  check_same_type(input, weight, "weight");
  check_same_type(input, bias.value_or(Tensor()), "bias");
  const auto& schema = schema_of<at::_ops::convolution_overrideable>();
  KernelScope scope(traits_of<at::_ops::convolution_overrideable>());
  add_argument(scope, input, schema.arguments()[0]);
  add_argument(scope, weight, schema.arguments()[1]);
  add_argument(scope, bias, schema.arguments()[2]);
  if (C10_UNLIKELY(!c10::openreg::executes_inline())) { // as InlineOrQueued does, but with aten::convolution
    scope.check_devices();
    return Boxed<at::_ops::convolution, &run_boxed>::call(
        input, weight, bias, stride, padding, dilation, transposed, output_padding, groups);
  }
  scope.enter();
  return scope.result(
      at::_ops::_convolution::redispatch( // the operator that convolution() calls
          kCpu,
          *scope.alias(input),
          *scope.alias(weight),
          aliased(scope, bias),
          stride,
          padding,
          dilation,
          transposed,
          output_padding,
          groups,
          /*benchmark=*/false,
          /*deterministic=*/false,
          /*cudnn_enabled=*/false,
          /*allow_tf32=*/false));
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward_overrideable(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups,
    std::array<bool, 3> output_mask) {
  check_devices<at::_ops::convolution_backward_overrideable>(grad_output, input, weight);
  // The bias of a convolution has one element for each channel of the output.
  const c10::SymInt bias_size[] = {transposed ? weight.sym_size(1) * groups : weight.sym_size(0)};
  return UnboxedCpuKernel<at::_ops::convolution_backward>::call(
      grad_output,
      input,
      weight,
      OptionalSymIntArrayRef(bias_size),
      stride,
      padding,
      dilation,
      transposed,
      output_padding,
      groups,
      output_mask);
}

} // namespace at::openreg
