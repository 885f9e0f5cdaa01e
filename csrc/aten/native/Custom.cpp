#include "aten/native/Custom.h"

#include <ATen/Dispatch.h>
#include <ATen/TensorOperators.h>
#include <ATen/autocast_mode.h>
#include <ATen/functorch/BatchedTensorImpl.h>
#include <ATen/ops/empty_like.h>
#include <openreg_launch.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegStream.h"

namespace at::openreg {

// LITERALINCLUDE START: CUSTOM KERNEL
// An operator with a kernel that was written for the device. The kernel is launched on the current stream. It reaches
// device memory only through orGetKernelPointer().
Tensor custom_abs(const Tensor& input) {
  const Tensor source = input.contiguous();
  const Tensor result = at::empty_like(source);
  const orStream_t stream = c10::openreg::getCurrentOpenRegStream(input.device().index()).stream();
  AT_DISPATCH_ALL_TYPES_AND2(kHalf, kBFloat16, input.scalar_type(), "custom_abs", [&] {
    const auto kernel = [](const scalar_t* from, scalar_t* to, int64_t size) {
      from = static_cast<const scalar_t*>(orGetKernelPointer(from));
      to = static_cast<scalar_t*>(orGetKernelPointer(to));
      for (int64_t i = 0; i < size; ++i) {
        to[i] = from[i] > scalar_t(0) ? from[i] : scalar_t(0) - from[i]; // 0 for -0, NaN for NaN
      }
    };
    const auto* from = source.const_data_ptr<scalar_t>();
    auto* to = result.mutable_data_ptr<scalar_t>();
    const int64_t size = source.numel();
    const orKernelInfo info{"openreg::custom_abs", {orReads(from, size), orWrites(to, size)}};
    OPENREG_CHECK(orLaunchKernel(stream, info, kernel, from, to, size));
  });
  return result;
}
// LITERALINCLUDE END: CUSTOM KERNEL

// LITERALINCLUDE START: CUSTOM META
Tensor custom_abs_meta(const Tensor& input) {
  return at::empty_like(input, input.options(), MemoryFormat::Contiguous);
}
// LITERALINCLUDE END: CUSTOM META

namespace {

// Calls custom_abs through the dispatcher. The kernels of autograd, autocast and vmap use it, because their dispatch
// keys come before the device's key.
Tensor call_custom_abs(const Tensor& input) {
  static const auto op =
      c10::Dispatcher::singleton().findSchemaOrThrow("openreg::custom_abs", "").typed<Tensor(const Tensor&)>();
  return op.call(input);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class CustomAbs : public torch::autograd::Function<CustomAbs> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& input) {
    const at::AutoDispatchBelowADInplaceOrView below;
    context->save_for_backward({input});
    return call_custom_abs(input);
  }

  static variable_list backward(AutogradContext* context, variable_list grad_outputs) {
    return {grad_outputs[0] * context->get_saved_variables()[0].sgn()};
  }
};

// LITERALINCLUDE START: TORCH.AUTOGRAD.FUNCTION Part1
// Returns its input, and halves the gradient.
class ReturnsSelf : public torch::autograd::Function<ReturnsSelf> {
 public:
  static Tensor forward(AutogradContext*, const Tensor& self) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return self;
  }

  static variable_list backward(AutogradContext*, variable_list grad_outputs) {
    return {grad_outputs[0] * 0.5};
  }
};
// LITERALINCLUDE END: TORCH.AUTOGRAD.FUNCTION Part1

// Returns a view of its input, and halves the gradient. Autograd must know that the result is a view.
class Aliasing : public torch::autograd::Function<Aliasing> {
 public:
  static Tensor forward(AutogradContext*, const Tensor& self) {
    const at::AutoDispatchBelowADInplaceOrView below;
    return self.view_symint(self.sym_sizes());
  }

  static variable_list backward(AutogradContext*, variable_list grad_outputs) {
    return {grad_outputs[0] * 0.5};
  }
};

} // namespace

Tensor custom_abs_autograd(const Tensor& input) {
  return CustomAbs::apply(input);
}

// Casts the input to float32 first, as autocast does for the operators on its float32 list.
Tensor custom_abs_autocast(const Tensor& input) {
  const c10::impl::ExcludeDispatchKeyGuard no_autocast(
      at::autocast::get_autocast_dispatch_key_from_device_type(identity.type));
  return call_custom_abs(at::autocast::cached_cast(kFloat, input, identity.type));
}

// vmap adds a dimension, which an elementwise operator treats like any other. Without a batching rule, vmap would call
// the operator once for each element of the batch.
Tensor custom_abs_batched(const Tensor& input) {
  const c10::impl::ExcludeDispatchKeyGuard unbatched(c10::DispatchKey::FuncTorchBatched);
  const auto* batched = at::functorch::maybeGetBatchedImpl(input);
  return at::functorch::makeBatched(call_custom_abs(batched->value()), batched->bdim(), batched->level());
}

Tensor openreg_hypotenuse(const Tensor& self, const Tensor& other) {
  return (self * self + other * other).sqrt();
}

Tensor custom_autograd_fn_returns_self(const Tensor& input) {
  return ReturnsSelf::apply(input);
}

Tensor custom_autograd_fn_aliasing(const Tensor& input) {
  return Aliasing::apply(input);
}

} // namespace at::openreg
