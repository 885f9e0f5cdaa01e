#include "Custom.h"

#include <ATen/Dispatch.h>
#include <ATen/Functions.h>
#include <ATen/TensorOperators.h>
#include <openreg_launch.h>
#include <torch/csrc/autograd/custom_function.h>
#include <torch/library.h>

#include "../../runtime/OpenRegStream.h"

namespace at::openreg {

// LITERALINCLUDE START: CUSTOM KERNEL
// A kernel written for the device: it is launched on the current stream and reaches device memory through
// orGetKernelPointer(), and through nothing else.
Tensor custom_abs(const Tensor& input) {
  const Tensor source = input.contiguous();
  const Tensor result = at::empty_like(source);
  const orStream_t stream = c10::openreg::stream_handle(c10::openreg::current_stream(input.device().index()));
  AT_DISPATCH_ALL_TYPES_AND2(kHalf, kBFloat16, input.scalar_type(), "custom_abs", [&] {
    const auto kernel = [](const scalar_t* from, scalar_t* to, int64_t size) {
      from = static_cast<const scalar_t*>(orGetKernelPointer(from));
      to = static_cast<scalar_t*>(orGetKernelPointer(to));
      for (int64_t i = 0; i < size; ++i) {
        to[i] = from[i] > scalar_t(0) ? from[i] : scalar_t(0) - from[i]; // 0 for -0, NaN for NaN
      }
    };
    OPENREG_CHECK(orLaunchKernel(
        stream, kernel, source.const_data_ptr<scalar_t>(), result.mutable_data_ptr<scalar_t>(), source.numel()));
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

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class CustomAbs : public torch::autograd::Function<CustomAbs> {
 public:
  static Tensor forward(AutogradContext* context, const Tensor& input) {
    const at::AutoDispatchBelowADInplaceOrView below;
    static const auto op =
        c10::Dispatcher::singleton().findSchemaOrThrow("openreg::custom_abs", "").typed<Tensor(const Tensor&)>();
    context->save_for_backward({input});
    return op.call(input);
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

// Returns a view of its input, which autograd must know of, and halves the gradient.
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

// LITERALINCLUDE START: TORCH.AUTOGRAD.FUNCTION Part2
Tensor custom_autograd_fn_returns_self(const Tensor& input) {
  return ReturnsSelf::apply(input);
}

Tensor custom_autograd_fn_aliasing(const Tensor& input) {
  return Aliasing::apply(input);
}
// LITERALINCLUDE END: TORCH.AUTOGRAD.FUNCTION Part2

} // namespace at::openreg
