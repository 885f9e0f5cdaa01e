#include "aten/native/Dropout.h"

#include <ATen/TensorOperators.h>
#include <ATen/ops/_fused_dropout_ops.h>
#include <ATen/ops/empty_like.h>
#include <ATen/ops/native_dropout_backward_ops.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/zeros_like.h>

#include "aten/native/DeviceCheck.h"
#include "runtime/OpenRegIdentity.h"

namespace at::openreg {
namespace {

// Whether the device has a kernel that draws, masks and scales at once. Its numbers are its own.
bool is_fused() {
  using Fused = at::_ops::_fused_dropout;
  static const bool fused = c10::Dispatcher::singleton()
                                .findSchemaOrThrow(Fused::name, Fused::overload_name)
                                .hasKernelForDispatchKey(identity.key);
  return fused;
}

} // namespace

std::tuple<Tensor, Tensor> native_dropout(const Tensor& input, double p, std::optional<bool> train) {
  TORCH_CHECK(0 <= p && p <= 1, "dropout probability has to be between 0 and 1, but got ", p);
  if (input.numel() == 0 || !train.value_or(true)) {
    return {input.clone(), at::ones_like(input, input.options().dtype(kBool))};
  }
  if (p == 1) {
    return {at::zeros_like(input), at::zeros_like(input, input.options().dtype(kBool))};
  }
  if (is_fused()) {
    const auto [result, mask] = at::_ops::_fused_dropout::call(input, 1 - p, std::nullopt);
    return {result, mask.view(kBool)};
  }
  const Tensor noise = at::empty_like(input).bernoulli_(1 - p);
  const Tensor mask = noise.to(kBool);
  return {input * noise.div_(1 - p), mask};
}

Tensor native_dropout_backward(const Tensor& grad_output, const Tensor& mask, double scale) {
  check_devices<at::_ops::native_dropout_backward>(grad_output, mask);
  if (is_fused()) {
    return grad_output * mask * scale;
  }
  return grad_output * mask.to(grad_output.scalar_type())
                           .div(1 / scale); // divided as in the forward: a product would round differently
}

} // namespace at::openreg
