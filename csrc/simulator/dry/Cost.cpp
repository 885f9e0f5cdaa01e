#include "simulator/dry/Cost.h"

#include <ATen/Context.h>
#include <ATen/core/Tensor.h>

#include <algorithm>
#include <string_view>

namespace at::openreg {
namespace {

// Operators that read or write only some rows or elements of their first operand.
bool looks_up(std::string_view name) {
  constexpr std::array<std::string_view, 14> kNames = {
      "aten::embedding",
      "aten::gather",
      "aten::index",
      "aten::index_add_",
      "aten::index_copy_",
      "aten::index_fill_",
      "aten::index_put_",
      "aten::_index_put_impl_",
      "aten::index_select",
      "aten::masked_select",
      "aten::scatter_",
      "aten::scatter_add_",
      "aten::nll_loss_forward",
      "aten::take"};
  return std::find(kNames.begin(), kNames.end(), name) != kNames.end();
}

size_t precision_of(const Tensor& tensor, KernelClass kernel_class) {
  const Context& context = globalContext();
  const ScalarType type = tensor.scalar_type();
  const bool is_rounded =
      type == kFloat && ((kernel_class == KernelClass::convolution && context.allowTF32CuDNN(Float32Op::CONV)) ||
                         (kernel_class == KernelClass::matmul &&
                          context.float32Precision(Float32Backend::CUDA, Float32Op::MATMUL) == Float32Precision::TF32));
  return is_rounded ? kTensorFloat32 : static_cast<size_t>(type);
}

double elements(const Tensor& tensor) {
  return static_cast<double>(tensor.numel());
}

// The multiplications of one element of the weight's first dimension.
double taps(const Tensor& weight) {
  return elements(weight) / static_cast<double>(weight.size(0));
}

// The elements of the output of a convolution.
double convolved(const Tensor& input, const Tensor& weight, ArrayRef<c10::IValue> geometry) {
  const auto number = [&](size_t which, size_t dimension) {
    const auto list = geometry[which].toIntVector();
    return list[list.size() == 1 ? 0 : dimension];
  };
  double count = static_cast<double>(input.size(0) * weight.size(0));
  for (size_t i = 0; i + 2 < static_cast<size_t>(input.dim()); ++i) {
    const int64_t stride = number(0, i), padding = number(1, i), dilation = number(2, i);
    const auto at = static_cast<int64_t>(i + 2);
    count *= static_cast<double>((input.size(at) + 2 * padding - dilation * (weight.size(at) - 1) - 1) / stride + 1);
  }
  return count;
}

double attention(const Tensor& query, const Tensor& key, const Tensor& value) {
  return 2 * elements(query) * static_cast<double>(key.size(-2)) *
         (1 + static_cast<double>(value.size(-1)) / static_cast<double>(query.size(-1)));
}

} // namespace

CostFormula::CostFormula(const c10::FunctionSchema& schema) {
  const auto find = [&](std::initializer_list<const char*> names) -> std::optional<size_t> {
    for (const char* name : names) {
      if (const auto index = schema.argumentIndexWithName(name)) {
        return static_cast<size_t>(*index);
      }
    }
    return std::nullopt;
  };
  const auto grad = find({"grad_output", "grad_out"});
  const auto query = find({"query"}), key = find({"key"}), value = find({"value"});
  const auto second = find({"mat2", "batch2", "vec"});
  const auto first = find({"mat1", "batch1", "mat", "self"});
  const auto input = find({"input"}), weight = find({"weight"}), stride = find({"stride"}), groups = find({"groups"});
  if (query && key && value) {
    kind_ = grad ? CostKind::attention_backward : CostKind::attention;
    tensors_ = {*query, *key, *value};
    is_causal_ = find({"is_causal"});
  } else if (input && weight && stride && groups) {
    kind_ = grad ? CostKind::convolution_backward : CostKind::convolution;
    tensors_ = {*input, *weight, grad.value_or(0)};
    geometry_ = *stride;
  } else if (first && second) {
    kind_ = CostKind::matmul;
    tensors_ = {*first, *second, 0};
  } else if (looks_up(schema.name())) {
    kind_ = CostKind::look_up;
  }
}

CallCost CostFormula::operator()(ArrayRef<c10::IValue> arguments) const {
  const auto tensor = [&](size_t which) { return arguments[tensors_[which]].toTensor(); };
  CallCost cost;
  switch (kind_) {
    case CostKind::bytes:
      return cost;
    case CostKind::look_up:
      cost.looks_up = true;
      return cost;
    case CostKind::matmul: {
      const Tensor second = tensor(1);
      cost.flops = 2 * elements(tensor(0)) * (second.dim() > 1 ? static_cast<double>(second.size(-1)) : 1);
      break;
    }
    case CostKind::convolution:
    case CostKind::convolution_backward: {
      // stride, padding, dilation, transposed, output_padding, groups, output_mask
      const auto geometry = arguments.slice(geometry_);
      const Tensor input = tensor(0), weight = tensor(1);
      const bool is_backward = kind_ == CostKind::convolution_backward;
      const double outputs = geometry[3].toBool() ? elements(input)
                             : is_backward        ? elements(tensor(2))
                                                  : convolved(input, weight, geometry);
      const int products = is_backward ? geometry[6].toBoolList()[0] + geometry[6].toBoolList()[1] : 1;
      cost.flops = 2 * outputs * taps(weight) * products;
      cost.kernel_class = KernelClass::convolution;
      break;
    }
    case CostKind::attention:
    case CostKind::attention_backward: {
      cost.flops = attention(tensor(0), tensor(1), tensor(2));
      cost.kernel_class = KernelClass::attention;
      if (kind_ == CostKind::attention_backward) { // five products, of which one computes the scores again
        cost.flops *= 2.5;
        cost.kernel_class = KernelClass::attention_backward;
      }
      if (is_causal_ && arguments[*is_causal_].toBool()) {
        cost.flops /= 2;
      }
      break;
    }
  }
  cost.precision = precision_of(tensor(0), cost.kernel_class);
  return cost;
}

} // namespace at::openreg
