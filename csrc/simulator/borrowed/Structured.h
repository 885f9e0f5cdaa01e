#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/native/Resize.h>

#include "aten/native/Minimal.h"
#include "runtime/OpenRegIdentity.h"
#include "simulator/borrowed/CpuKernel.h"

// Structured kernels. PyTorch splits an operator into meta(), which checks the arguments and asks for an output of a
// certain size, and impl(), which computes the output. A backend inherits both functions and supplies the memory of the
// output.
//
//   using at::_ops::mul_Tensor;
//   m.impl("mul.Tensor", Named<mul_Tensor, &StructuredKernel<structured_mul_out, mul_Tensor>::call>::call);
//
// The route is the same whether the device executes inline or not, as on CUDA: meta() and impl() run in the call, and
// only the inner loop that impl() calls (Stub.h) is queued.
//
// Rule: for type promotion, TensorIterator makes converted temporaries only on the CPU. On other devices it expects
// kernels that convert while they read. So a structured kernel gets only floating-point tensors of one dtype on one
// device, and real Python numbers, which PyTorch may wrap in a 0-dim CPU tensor. Every other call runs through
// CpuKernel.h.
namespace at::openreg {

// LITERALINCLUDE START: STRUCTURED BODY
// The structured kernel `Kernel`, with the output's memory on the device.
template <class Kernel>
struct Structured final : Kernel {
  explicit Structured(Tensor& output) : output(output) {}

  void set_output_raw_strided(int64_t index, IntArrayRef size, IntArrayRef stride, TensorOptions options) override {
    if (!output.defined()) {
      output = empty_output(size, stride, options);
    } else if (output.sizes() != size) {
      // Reached only for out=: in an in-place call, TensorIterator refuses an output of another size.
      at::native::resize_output(output, size);
      if (!stride.empty()) {
        output.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
      }
    }
    Kernel::set_output_raw_strided(index, size, stride, options);
  }

  const Tensor& maybe_get_output(int64_t) override {
    return output;
  }

  Tensor& output;
};
// LITERALINCLUDE END: STRUCTURED BODY

// Accepts operands that a structured kernel can use as they are: floating-point tensors of one dtype on one device, and
// real Python numbers, which may be wrapped in a tensor.
class FloatingOperands {
 public:
  bool accepts(const Tensor& tensor) {
    const TensorImpl* impl = tensor.unsafeGetTensorImpl();
    if (C10_LIKELY(is_device_tensor(tensor))) {
      if (!first_) {
        first_ = impl;
        return isFloatingType(typeMetaToScalarType(impl->dtype()));
      }
      return impl->dtype() == first_->dtype() && impl->device() == first_->device();
    }
    return impl->is_wrapped_number() && !isComplexType(typeMetaToScalarType(impl->dtype()));
  }
  bool accepts(const std::optional<Tensor>& tensor) {
    return !tensor || accepts(*tensor);
  }
  bool accepts(const Scalar& number) {
    return !number.isComplex();
  }
  bool accepts(const std::optional<Scalar>& number) {
    return !number || accepts(*number);
  }
  template <class T>
  bool accepts(const T&) { // a flag, a mode, a number of digits
    return true;
  }

 private:
  const TensorImpl* first_ = nullptr;
};

// Structured kernels take optional arguments by reference.
inline OptionalScalarRef argument(const std::optional<Scalar>& number) {
  return number ? OptionalScalarRef(&*number) : OptionalScalarRef();
}
inline OptionalTensorRef argument(const std::optional<Tensor>& tensor) {
  return tensor && tensor->defined() ? OptionalTensorRef(*tensor) : OptionalTensorRef();
}
template <class T>
const T& argument(const T& value) {
  return value;
}

template <class Kernel, class... Args>
void compute(Tensor& output, const Args&... args) {
  Structured<Kernel> kernel(output);
  kernel.meta(argument(args)...);
  kernel.impl(argument(args)..., output);
}

template <class Kernel, class Op, class Schema = typename Op::schema>
struct StructuredKernel;

template <class Kernel, class Op, class... Args> // add(self, other)
struct StructuredKernel<Kernel, Op, Tensor(Args...)> {
  static Tensor call(Args... args) {
    FloatingOperands operands;
    if (!(operands.accepts(args) && ...)) {
      return UnboxedCpuKernel<Op>::call(args...);
    }
    Tensor output;
    compute<Kernel>(output, args...);
    return output;
  }
};

template <class Kernel, class Op, class... Args> // add_(self, other)
struct StructuredKernel<Kernel, Op, Tensor&(Tensor&, Args...)> {
  static Tensor& call(Tensor& self, Args... args) {
    FloatingOperands operands;
    if (!operands.accepts(self) || !(operands.accepts(args) && ...)) {
      return UnboxedCpuKernel<Op>::call(self, args...);
    }
    compute<Kernel>(self, self, args...);
    return self;
  }
};

template <class Kernel, class Op, class... Args> // add(self, other, out=)
struct StructuredKernel<Kernel, Op, Tensor&(const Tensor&, Args...)> {
  static Tensor& call(const Tensor& self, Args... args) {
    FloatingOperands operands;
    if (!operands.accepts(self) || !(operands.accepts(args) && ...)) {
      return UnboxedCpuKernel<Op>::call(self, args...);
    }
    const auto all = std::forward_as_tuple(self, args...);
    Tensor& output = std::get<sizeof...(Args)>(all);
    [&]<size_t... input>(std::index_sequence<input...>) {
      compute<Kernel>(output, std::get<input>(all)...);
    }(std::make_index_sequence<sizeof...(Args)>());
    return output;
  }
};

// Accepts tensors of one device of this backend: bool tensors (masks), and tensors of one other dtype.
class SameTypeOperands {
 public:
  bool accepts(const Tensor& tensor) {
    if (C10_UNLIKELY(!is_device_tensor(tensor))) {
      return false;
    }
    if (device_ != -1 && tensor.get_device() != device_) {
      return false;
    }
    device_ = tensor.get_device();
    if (tensor.scalar_type() == kBool) {
      return true;
    }
    if (!first_) {
      first_ = tensor.unsafeGetTensorImpl();
      return true;
    }
    return tensor.dtype() == first_->dtype();
  }
  bool accepts(const Scalar&) {
    return true;
  }

 private:
  DeviceIndex device_ = -1;           // of the tensors
  const TensorImpl* first_ = nullptr; // the first tensor that is no mask
};

// A PyTorch kernel that is one function for all devices: it builds its TensorIterator and calls its DispatchStub, or it
// calls another operator (relu). If SameTypeOperands accepts the operands, the function runs on the device tensors;
// otherwise UnboxedCpuKernel runs.
template <class Op, auto kernel, class Schema = typename Op::schema>
struct SharedKernel;

template <class Op, auto kernel, class Result, class... Args>
struct SharedKernel<Op, kernel, Result(Args...)> {
  static Result call(Args... args) {
    SameTypeOperands operands;
    if (!(operands.accepts(args) && ...) || C10_UNLIKELY(is_narrow_call<Op>(args...))) {
      return UnboxedCpuKernel<Op>::call(args...);
    }
    return kernel(args...);
  }
};

} // namespace at::openreg
