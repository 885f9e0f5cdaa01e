#include <ATen/ops/convolution_backward_ops.h>
#include <torch/library.h>

#include "borrowed/CpuKernel.h"
#include "borrowed/routes/Convolution.h"

// PyTorch has composite kernels for these operators, for every backend. For a tensor that is_cuda() they call kernels
// that only a build with CUDA has. A kernel of the device's own wins over the composite kernel.
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

// Op(..., output_mask). The CPU's kernel may give more gradients than the mask asks for.
template <class Op, class Schema = typename Op::schema>
struct MaskedGradients;

template <class Op, class Gradients, class... Args>
struct MaskedGradients<Op, Gradients(Args...)> {
  static Gradients call(Args... args) {
    auto [input, weight, bias] = UnboxedCpuKernel<Op>::call(args...);
    const std::array<bool, 3> mask = std::get<sizeof...(Args) - 1>(std::tie(args...));
    return {mask[0] ? input : Tensor(), mask[1] ? weight : Tensor(), mask[2] ? bias : Tensor()};
  }
};

// There is neither cuDNN nor MIOpen, so ctc_loss() uses PyTorch's own kernel.
bool no_library_for_ctc_loss(const Tensor&, const Tensor&, IntArrayRef, IntArrayRef, int64_t) {
  return false;
}

bool no_library_for_ctc_loss_of_tensors(const Tensor&, const Tensor&, const Tensor&, const Tensor&, int64_t) {
  return false;
}

TORCH_LIBRARY_IMPL(aten, CUDA, m) {
  m.impl("convolution", convolution_overrideable);
  m.impl("_convolution", _convolution);
  m.impl("convolution_backward", MaskedGradients<at::_ops::convolution_backward>::call);
  for (const char* name : {"_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"}) {
    m.impl(name, no_library_for_ctc_loss);
    m.impl((std::string(name) + ".Tensor").c_str(), no_library_for_ctc_loss_of_tensors);
  }
}

} // namespace
} // namespace at::openreg
