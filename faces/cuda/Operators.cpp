#include "CudaOperators.h"

#include <ATen/Context.h>
#include <ATen/ops/convolution_backward_ops.h>
#include <torch/library.h>

#include "aten/native/Convolution.h"
#include "aten/native/OnCpu.h"

// Operators whose composite kernel, PyTorch's own for every backend, takes another way for a tensor that is_cuda(): to
// kernels that only a build with CUDA has. A kernel of the device's own comes before the composite one.
namespace at::openreg {
namespace {

Tensor _convolution(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups,
    bool /*benchmark*/,
    bool /*deterministic*/,
    bool /*cudnn_enabled*/,
    bool /*allow_tf32*/) {
  return convolution_overrideable(
      input, weight, bias, stride, padding, dilation, transposed, output_padding, std::move(groups));
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    OptionalSymIntArrayRef bias_sizes,
    c10::SymIntArrayRef stride,
    c10::SymIntArrayRef padding,
    c10::SymIntArrayRef dilation,
    bool transposed,
    c10::SymIntArrayRef output_padding,
    c10::SymInt groups,
    std::array<bool, 3> output_mask) {
  auto [grad_input, grad_weight, grad_bias] = UnboxedOnCpu<at::_ops::convolution_backward>::call(
      grad_output,
      input,
      weight,
      bias_sizes,
      stride,
      padding,
      dilation,
      transposed,
      output_padding,
      std::move(groups),
      output_mask);
  // The CPU's kernel may give more than is asked for.
  return {
      output_mask[0] ? grad_input : Tensor(),
      output_mask[1] ? grad_weight : Tensor(),
      output_mask[2] ? grad_bias : Tensor()};
}

// There is neither cuDNN nor MIOpen: ctc_loss() takes PyTorch's own kernel.
bool no_library_for_ctc_loss(const Tensor&, const Tensor&, IntArrayRef, IntArrayRef, int64_t) {
  return false;
}

bool no_library_for_ctc_loss_of_tensors(const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t) {
  return false;
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("convolution", convolution_overrideable);
  m.impl("_convolution", _convolution);
  m.impl("convolution_backward", convolution_backward);
  for (const char* name : {"_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"}) {
    m.impl(name, no_library_for_ctc_loss);
    m.impl((std::string(name) + ".Tensor").c_str(), no_library_for_ctc_loss_of_tensors);
  }
}

} // namespace

// As select_sdp_backend(), aten/src/ATen/native/transformers/cuda/sdp_utils.cpp, chooses on a GPU without cuDNN.
bool fused_attention_is_enabled(const Tensor& query, const std::optional<Tensor>& mask) {
  const auto& context = globalContext();
  const ScalarType type = query.scalar_type();
  const bool flash = context.userEnabledFlashSDP() && (type == kHalf || type == kBFloat16) && !mask;
  const bool efficient = context.userEnabledMemEfficientSDP() && type != kDouble;
  return flash || efficient || context.userEnabledOverrideableSDP();
}

const char* refuse_attention() {
  const auto& context = globalContext();
  TORCH_CHECK(
      !context.userEnabledFlashSDP() && !context.userEnabledMemEfficientSDP() && !context.userEnabledCuDNNSDP(),
      "No available kernel. Aborting execution.");
  return "";
}

} // namespace at::openreg
