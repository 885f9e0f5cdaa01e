// The kernels of a small backend, in a library of their own: all that a linear network, its loss, its backward and SGD
// need. They are float32 loops. Each enters the kernel scope of runtime/OpenRegKernel.h, which orders the kernel with
// the other work of its stream.
#include <ATen/ExpandUtils.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/empty.h>
#include <torch/library.h>

#include <algorithm>
#include <array>
#include <cstring>

#include "aten/native/Copy.h"
#include "runtime/OpenRegKernel.h"
#include "runtime/OpenRegStream.h"

namespace own {

using at::IntArrayRef;
using at::Scalar;
using at::Tensor;

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

// Runs `body` on the calling thread, after the work that is queued on the current stream.
template <class Body>
void compute(const char* name, Operands operands, const Body& body) {
  const auto stream = c10::openreg::getCurrentOpenRegStream(operands[0].device().index()).stream();
  const c10::openreg::Kernel kernel(stream, name, &visit_operands, &operands);
  body();
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
  const Tensor out = empty_broadcast(self, other);
  elementwise("add", out, self, other, [scale = alpha.toFloat()](float a, float b) { return a + scale * b; });
  return out;
}

Tensor& add_(Tensor& self, const Tensor& other, const Scalar& alpha) {
  elementwise("add_", self, self, other, [scale = alpha.toFloat()](float a, float b) { return a + scale * b; });
  return self;
}

Tensor mul(const Tensor& self, const Tensor& other) {
  const Tensor out = empty_broadcast(self, other);
  elementwise("mul", out, self, other, [](float a, float b) { return a * b; });
  return out;
}

Tensor relu(const Tensor& self) {
  const Tensor out = at::empty(self.sizes(), self.options());
  elementwise("relu", out, self, self, [](float a, float) { return a > 0 ? a : 0; });
  return out;
}

Tensor threshold_backward(const Tensor& grad, const Tensor& self, const Scalar& threshold) {
  const Tensor out = at::empty(self.sizes(), self.options());
  const float limit = threshold.toFloat();
  elementwise("threshold_backward", out, grad, self, [=](float a, float b) { return b > limit ? a : 0; });
  return out;
}

Tensor& fill_(Tensor& self, const Scalar& value) {
  elementwise("fill_", self, self, self, [number = value.toFloat()](float, float) { return number; });
  return self;
}

Tensor sum_dims(const Tensor& self, at::OptionalIntArrayRef dims, bool keepdim, std::optional<at::ScalarType>) {
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
  compute("sum", {out, self}, [&] {
    for_each_element<2>({self, out}, [](const auto& at) { at_address(at[1]) += at_address(at[0]); });
  });
  return out.view(kept);
}

Tensor sum(const Tensor& self, std::optional<at::ScalarType> dtype) {
  return own::sum_dims(self, std::nullopt, false, dtype);
}

Tensor addmm(const Tensor& self, const Tensor& a, const Tensor& b, const Scalar& beta, const Scalar& alpha) {
  Tensor out = at::empty({a.size(0), b.size(1)}, a.options());
  const Tensor bias = self.expand(out.sizes());
  compute("addmm", {out, bias, a, b}, [&] {
    const auto element = [](const Tensor& matrix, int64_t row, int64_t column) -> float& {
      const int64_t place = row * matrix.stride(0) + column * matrix.stride(1);
      return at_address(kernel_address(matrix) + place * static_cast<int64_t>(sizeof(float)));
    };
    for (int64_t i = 0; i < out.size(0); ++i) {
      for (int64_t j = 0; j < out.size(1); ++j) {
        float total = 0;
        for (int64_t k = 0; k < a.size(1); ++k) {
          total += element(a, i, k) * element(b, k, j);
        }
        element(out, i, j) = beta.toFloat() * element(bias, i, j) + alpha.toFloat() * total;
      }
    }
  });
  return out;
}

Tensor mm(const Tensor& a, const Tensor& b) {
  Tensor zero = at::empty({1, 1}, a.options());
  own::fill_(zero, 0);
  return own::addmm(zero, a, b, 1, 1);
}

// The copies that copy_ cannot make as one block of bytes: one dtype and one device, but another order of the elements.
void copy(Tensor& self, const Tensor& source, bool) {
  TORCH_CHECK(self.device() == source.device() && self.dtype() == source.dtype(), "only rearranges");
  compute("copy_", {self, source}, [&] {
    for_each_element<2>(
        {self, source}, [size = self.element_size()](const auto& at) { std::memcpy(at[0], at[1], size); });
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

} // namespace own
