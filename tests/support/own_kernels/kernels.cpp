// The kernels of a small backend, in a library of their own: all that a linear network, its loss, its backward and SGD
// need, the copies that copy_ leaves to a kernel, and PyTorch's copying fallback for everything else. They are float32
// loops. Each enters the kernel scope of runtime/OpenRegKernel.h, which orders the kernel with the other work of its
// stream.
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/native/CPUFallback.h>
#include <ATen/ops/add.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/fill.h>
#include <ATen/ops/from_blob.h>
#include <ATen/ops/mm.h>
#include <ATen/ops/mul.h>
#include <ATen/ops/relu.h>
#include <ATen/ops/sum.h>
#include <ATen/ops/threshold_backward.h>
#include <torch/library.h>

#include <algorithm>
#include <array>

#include "aten/native/Arguments.h"
#include "aten/native/Copy.h"
#include "aten/native/FallbackPolicy.h"
#include "runtime/OpenRegGenerator.h"
#include "runtime/OpenRegKernel.h"
#include "runtime/OpenRegStream.h"

namespace own {

using at::IntArrayRef;
using at::Scalar;
using at::Tensor;

// PyTorch's fallback copies the operands to the CPU, calls the CPU's kernel, and copies the results back. It leaves
// generators as they are, so the CPU generator of the device's generator takes their place.
void run_on_cpu(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  at::openreg::note_fallback(op.schema());
  const auto& arguments = op.schema().arguments();
  const auto values = torch::jit::last(*stack, arguments.size());
  c10::DeviceIndex device = -1;
  for (const c10::IValue& value : values) {
    at::openreg::for_each_tensor(value, [&](const Tensor& tensor) {
      if (device < 0 && tensor.defined() && tensor.is_privateuseone()) {
        device = tensor.device().index();
      }
    });
  }
  // Without a tensor of the device, the call is for the CPU, whose kernel refuses the device's generator.
  for (size_t i = 0; device >= 0 && i < arguments.size(); ++i) {
    if (at::openreg::is_generator(arguments[i])) {
      auto& value = torch::jit::peek(*stack, i, arguments.size());
      value = c10::openreg::generator_of(value.toOptional<at::Generator>(), device).cpu_generator();
    }
  }
  at::native::cpu_fallback(op, stack);
}

// For operands that a kernel of this file does not take.
template <class Op, class... Arguments>
decltype(auto) on_cpu(Arguments&&... arguments) {
  return at::native::call_fallback_fn<&run_on_cpu, Op>::call(std::forward<Arguments>(arguments)...);
}

// Whether the kernels of this file take these operands: float32 on one device.
bool are_taken(std::initializer_list<Tensor> operands) {
  return std::all_of(operands.begin(), operands.end(), [&](const Tensor& each) {
    return each.device() == operands.begin()->device() && each.scalar_type() == at::kFloat &&
           each.layout() == at::kStrided && !each.is_neg();
  });
}

// The operands of a kernel: the first one is written.
using Operands = std::vector<Tensor>;

void visit_operands(void* data, orOperandFn_t visit, void* context) {
  bool is_result = true;
  for (const Tensor& operand : *static_cast<const Operands*>(data)) {
    const unsigned access = is_result ? orAccessRead | orAccessWrite : orAccessRead;
    c10::openreg::visit_tensor(*operand.unsafeGetTensorImpl(), access, visit, context);
    is_result = false;
  }
}

char* kernel_address(const Tensor& tensor) {
  return static_cast<char*>(orGetKernelPointer(tensor.data_ptr()));
}

// Runs `body` on the calling thread, after the work that is queued on the current stream of `device`.
template <class Body>
void compute_on(c10::DeviceIndex device, const char* name, Operands operands, const Body& body) {
  const auto stream = c10::openreg::getCurrentOpenRegStream(device).stream();
  const c10::openreg::Kernel kernel(stream, name, &visit_operands, &operands);
  body();
}

template <class Body>
void compute(const char* name, Operands operands, const Body& body) {
  compute_on(operands[0].device().index(), name, operands, body);
}

// Calls `body(addresses)` for each element of the first operand; the others are expanded to its shape.
template <size_t count, class Body>
void for_each_element(const std::array<Tensor, count>& given, const Body& body) {
  std::array<Tensor, count> operands;
  std::array<char*, count> addresses;
  const IntArrayRef sizes = given[0].sizes();
  for (size_t i = 0; i < count; ++i) {
    operands[i] = given[i].expand(sizes);
    addresses[i] = kernel_address(operands[i]);
  }
  std::vector<int64_t> index(sizes.size(), 0);
  for (int64_t element = 0; element < given[0].numel(); ++element) {
    body(addresses);
    for (int64_t dim = static_cast<int64_t>(sizes.size()) - 1; dim >= 0; --dim) { // the last dimension counts first
      const bool wraps = ++index[dim] == sizes[dim];
      for (size_t i = 0; i < count; ++i) {
        const int64_t step = operands[i].stride(dim) * static_cast<int64_t>(operands[i].element_size());
        addresses[i] += wraps ? -step * (sizes[dim] - 1) : step;
      }
      if (!wraps) {
        break;
      }
      index[dim] = 0;
    }
  }
}

float& at_address(char* address) {
  return *reinterpret_cast<float*>(address);
}

template <class Function>
void elementwise(const char* name, const Tensor& out, const Tensor& a, const Tensor& b, const Function& function) {
  compute(name, {out, a, b}, [&] {
    for_each_element<3>(
        {out, a, b}, [&](const auto& at) { at_address(at[0]) = function(at_address(at[1]), at_address(at[2])); });
  });
}

Tensor empty_broadcast(const Tensor& a, const Tensor& b) {
  return at::empty(at::infer_size(a.sizes(), b.sizes()), a.options());
}

Tensor add(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  if (!are_taken({self, other})) {
    return on_cpu<at::_ops::add_Tensor>(self, other, alpha);
  }
  const Tensor out = empty_broadcast(self, other);
  elementwise(
      "aten::add.Tensor", out, self, other, [scale = alpha.toFloat()](float a, float b) { return a + scale * b; });
  return out;
}

Tensor& add_(Tensor& self, const Tensor& other, const Scalar& alpha) {
  if (!are_taken({self, other})) {
    return on_cpu<at::_ops::add__Tensor>(self, other, alpha);
  }
  elementwise(
      "aten::add_.Tensor", self, self, other, [scale = alpha.toFloat()](float a, float b) { return a + scale * b; });
  return self;
}

Tensor mul(const Tensor& self, const Tensor& other) {
  if (!are_taken({self, other})) {
    return on_cpu<at::_ops::mul_Tensor>(self, other);
  }
  const Tensor out = empty_broadcast(self, other);
  elementwise("aten::mul.Tensor", out, self, other, [](float a, float b) { return a * b; });
  return out;
}

Tensor relu(const Tensor& self) {
  if (!are_taken({self})) {
    return on_cpu<at::_ops::relu>(self);
  }
  const Tensor out = at::empty(self.sizes(), self.options());
  elementwise("aten::relu", out, self, self, [](float a, float) { return a > 0 ? a : 0; });
  return out;
}

Tensor threshold_backward(const Tensor& grad, const Tensor& self, const Scalar& threshold) {
  if (!are_taken({grad, self})) {
    return on_cpu<at::_ops::threshold_backward>(grad, self, threshold);
  }
  const Tensor out = at::empty(self.sizes(), self.options());
  const float limit = threshold.toFloat();
  elementwise("aten::threshold_backward", out, grad, self, [=](float a, float b) { return b > limit ? a : 0; });
  return out;
}

Tensor& fill_(Tensor& self, const Scalar& value) {
  if (!are_taken({self})) {
    return on_cpu<at::_ops::fill__Scalar>(self, value);
  }
  elementwise("aten::fill_.Scalar", self, self, self, [number = value.toFloat()](float, float) { return number; });
  return self;
}

Tensor sum_dims(const Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, std::optional<at::ScalarType> dtype) {
  if (!are_taken({self}) || dtype.value_or(at::kFloat) != at::kFloat) {
    return on_cpu<at::_ops::sum_dim_IntList>(self, dims, keepdim, dtype);
  }
  std::vector<int64_t> sizes(self.sizes().vec()), kept;
  for (int64_t dim = 0; dim < self.dim(); ++dim) {
    const bool is_summed = !dims || dims->empty() || std::any_of(dims->begin(), dims->end(), [&](int64_t each) {
      return each == dim || each + self.dim() == dim;
    });
    sizes[dim] = is_summed ? 1 : sizes[dim];
    if (!is_summed || keepdim) {
      kept.push_back(sizes[dim]);
    }
  }
  Tensor out = at::empty(sizes, self.options());
  own::fill_(out, 0);
  compute("aten::sum.dim_IntList", {out, self}, [&] {
    for_each_element<2>({self, out}, [](const auto& at) { at_address(at[1]) += at_address(at[0]); });
  });
  return out.view(kept);
}

Tensor sum(const Tensor& self, std::optional<at::ScalarType> dtype) {
  return own::sum_dims(self, std::nullopt, false, dtype);
}

Tensor addmm(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  if (!are_taken({self, a, b})) {
    return on_cpu<at::_ops::addmm>(self, a, b, beta, alpha);
  }
  Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  const Tensor bias = self.expand(out.sizes());
  compute("aten::addmm", {out, bias, a, b}, [&] {
    const auto element = [](const Tensor& matrix, int64_t row, int64_t column) {
      return reinterpret_cast<float*>(kernel_address(matrix)) + row * matrix.stride(0) + column * matrix.stride(1);
    };
    const int64_t inner = a.size(1), a_step = a.stride(1), b_step = b.stride(0);
    for (int64_t i = 0; i < out.size(0); ++i) {
      for (int64_t j = 0; j < out.size(1); ++j) {
        const float *x = element(a, i, 0), *y = element(b, 0, j);
        float total = 0;
        for (int64_t k = 0; k < inner; ++k) {
          total += x[k * a_step] * y[k * b_step];
        }
        *element(out, i, j) = beta.toFloat() * *element(bias, i, j) + alpha.toFloat() * total;
      }
    }
  });
  return out;
}

Tensor mm(const Tensor& a, const Tensor& b) {
  if (!are_taken({a, b})) {
    return on_cpu<at::_ops::mm>(a, b);
  }
  Tensor zero = at::empty({1, 1}, a.options());
  own::fill_(zero, 0);
  return own::addmm(zero, a, b, 1, 1);
}

// A CPU tensor over the same bytes, for the time of one kernel.
Tensor view_on_cpu(const Tensor& tensor) {
  if (tensor.is_cpu()) {
    return tensor;
  }
  Tensor view = at::from_blob(
      kernel_address(tensor), tensor.sizes(), tensor.strides(), at::TensorOptions(at::kCPU).dtype(tensor.dtype()));
  view._set_conj(tensor.is_conj());
  view._set_neg(tensor.is_neg());
  return view;
}

void copy(Tensor& self, const Tensor& source, bool) {
  TORCH_CHECK_NOT_IMPLEMENTED(self.layout() == at::kStrided && source.layout() == at::kStrided, "only strided tensors");
  at::openreg::on_copy_stream(self, source, [&](c10::DeviceIndex device) {
    compute_on(device, "aten::copy_", {self, source}, [&] { view_on_cpu(self).copy_(view_on_cpu(source)); });
  });
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("add.Tensor", add);
  m.impl("add_.Tensor", add_);
  m.impl("mul.Tensor", mul);
  m.impl("relu", relu);
  m.impl("threshold_backward", threshold_backward);
  m.impl("fill_.Scalar", fill_);
  m.impl("sum", sum);
  m.impl("sum.dim_IntList", sum_dims);
  m.impl("addmm", addmm);
  m.impl("mm", mm);
  at::openreg::set_copy_kernel(&copy);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&run_on_cpu>());
}

} // namespace own
