#include "simulator/borrowed/routes/Wider.h"

#include <ATen/native/TypeProperties.h>
#include <ATen/ops/empty_like.h>

#include <algorithm>
#include <bit>

#include "aten/native/Arguments.h"
#include "aten/native/NondeterminismChecks.h"
#include "runtime/OpenRegIdentity.h"
#include "simulator/borrowed/Fallback.h"

namespace at::openreg {
namespace {

ScalarType wider(ScalarType dtype) {
  return dtype == kComplexHalf ? kComplexFloat : dtype == kBool ? kByte : kFloat;
}

// The dtype of a result of dtype `result`, if the operands had the dtype `operand`.
ScalarType rounded(ScalarType result, ScalarType operand) {
  const bool half = operand == kHalf || operand == kComplexHalf;
  if (result == kComplexFloat && half) {
    return kComplexHalf;
  }
  if (result == kFloat && half) {
    return kHalf;
  }
  return result == wider(operand) ? operand : result;
}

const c10::IValue& argument(
    const c10::FunctionSchema& schema, std::span<const c10::IValue> arguments, const char* name) {
  return arguments[*schema.argumentIndexWithName(name)];
}

// The dtype that the operands promote to.
ScalarType promoted(const c10::FunctionSchema& schema, std::span<const c10::IValue> arguments) {
  native::ResultTypeState state;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const c10::IValue& value = arguments[i];
    if (value.isScalar()) {
      state = native::update_result_type_state(value.toScalar(), state);
    } else if (value.isTensor() && value.toTensor().defined() && !schema.arguments()[i].is_out()) {
      state = native::update_result_type_state(value.toTensor(), state);
    }
  }
  return native::result_type(state);
}

// As CuFFTPlanCache.h: cuFFT's transforms in half precision have sizes that are powers of two.
void check_sizes_of_transform(const c10::FunctionSchema& schema, std::span<const c10::IValue> arguments) {
  const Tensor& self = arguments[0].toTensor();
  const std::vector<int64_t> dims = argument(schema, arguments, "dim").toIntVector();
  std::vector<int64_t> sizes;
  for (const int64_t dim : dims) {
    sizes.push_back(self.size(dim));
  }
  if (const auto last = schema.argumentIndexWithName("last_dim_size"); last && !sizes.empty()) {
    sizes.back() = arguments[*last].toInt();
  }
  for (const int64_t size : sizes) {
    TORCH_CHECK(
        std::has_single_bit(static_cast<uint64_t>(size)),
        "cuFFT only supports dimensions whose sizes are powers of two when computing in half precision, but got a "
        "signal size of",
        IntArrayRef(sizes));
  }
}

} // namespace

bool WiderKernel::is_narrow(ScalarType dtype) const {
  return std::find(dtypes_.begin(), dtypes_.end(), dtype) != dtypes_.end();
}

bool WiderKernel::is_narrow(const Tensor& tensor) const {
  return is_device_tensor(tensor) && is_narrow(tensor.scalar_type());
}

void WiderKernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const size_t count = schema.arguments().size();
  const std::span<c10::IValue> arguments(stack->data() + stack->size() - count, count);
  std::optional<ScalarType> asked; // the dtype of the result, as of sum(dtype=)
  const auto index = schema.argumentIndexWithName("dtype");
  if (index) {
    asked = arguments[*index].toOptional<ScalarType>();
  }
  const bool asks_for_narrow = asked && is_narrow(*asked);
  const bool has_narrow = std::any_of(arguments.begin(), arguments.end(), [&](const c10::IValue& value) {
    return value.isTensor() && is_narrow(value.toTensor());
  });
  if (!has_narrow && !asks_for_narrow) {
    return check_and_run<&fallback>(op, keys, stack);
  }
  if (precondition_ != nullptr) {
    precondition_(schema, arguments);
  }
  if (asks_for_narrow) {
    arguments[*index] = wider(*asked);
  }
  // A result is not rounded if another operand has the wider dtype.
  const ScalarType dtype = promoted(schema, arguments);
  std::vector<std::pair<Tensor, Tensor>> written; // the program's tensor, and the wider one that the kernel writes
  for (size_t i = 0; i < count; ++i) {
    if (!arguments[i].isTensor() || !is_narrow(arguments[i].toTensor())) {
      continue;
    }
    Tensor tensor = arguments[i].toTensor();
    const ScalarType wide = wider(tensor.scalar_type());
    const bool out = schema.arguments()[i].is_out();
    Tensor widened = out ? at::empty_like(tensor, tensor.options().dtype(wide)) : tensor.to(wide);
    if (schema.is_mutable({c10::SchemaArgType::input, i})) {
      written.emplace_back(std::move(tensor), widened);
    }
    arguments[i] = std::move(widened);
  }
  check_and_run<&fallback>(op, keys, stack);
  for (const auto& [tensor, widened] : written) {
    if (tensor.sizes() != widened.sizes()) {
      tensor.resize_(widened.sizes());
    }
    tensor.copy_(widened);
  }
  const size_t results = schema.returns().size();
  for (c10::IValue& value : std::span(stack->data() + stack->size() - results, results)) {
    if (!value.isTensor()) { // equal()
      continue;
    }
    const Tensor result = value.toTensor();
    const auto same =
        std::find_if(written.begin(), written.end(), [&](const auto& pair) { return pair.second.is_same(result); });
    if (same != written.end()) {
      value = same->first;
    } else if (asked || is_narrow(dtype)) {
      value = result.to(asked.value_or(rounded(result.scalar_type(), dtype)));
    }
  }
}

std::vector<WiderOperators> wider_operators() {
  return {
      {{"avg_pool3d",
        "avg_pool3d.out",
        "avg_pool3d_backward",
        "avg_pool3d_backward.grad_input",
        "_upsample_bilinear2d_aa",
        "_upsample_bilinear2d_aa.out",
        "_upsample_bilinear2d_aa_backward",
        "_upsample_bilinear2d_aa_backward.grad_input",
        "_upsample_bicubic2d_aa",
        "_upsample_bicubic2d_aa.out",
        "_upsample_bicubic2d_aa_backward",
        "_upsample_bicubic2d_aa_backward.grad_input",
        "multi_margin_loss",
        "multi_margin_loss.out",
        "multi_margin_loss_backward",
        "multi_margin_loss_backward.grad_input",
        "multilabel_margin_loss_forward",
        "multilabel_margin_loss_forward.output",
        "multilabel_margin_loss_backward",
        "multilabel_margin_loss_backward.grad_input"},
       {kHalf, kBFloat16}},
      {{"rrelu_with_noise", "rrelu_with_noise.out", "rrelu_with_noise_", "polygamma", "polygamma.out", "polygamma_"},
       {kHalf}},
      {{"round.decimals", "round.decimals_out", "round_.decimals"}, {kHalf}},
      {{"_fft_r2c", "_fft_r2c.out", "_fft_c2r", "_fft_c2r.out", "_fft_c2c", "_fft_c2c.out"},
       {kHalf, kComplexHalf},
       check_sizes_of_transform},
      {{"trace"}, {kBool, kComplexHalf}},
      {{"abs_"}, {kBool}},
      {{"acos.out",
        "acos_",
        "acosh",
        "acosh.out",
        "acosh_",
        "angle.out",
        "asin.out",
        "asin_",
        "asinh",
        "asinh.out",
        "asinh_",
        "atan.out",
        "atan_",
        "atanh",
        "atanh.out",
        "atanh_",
        "cos.out",
        "cos_",
        "cosh.out",
        "cosh_",
        "div.out_mode",
        "div_.Tensor_mode",
        "exp.out",
        "lerp.Scalar_out",
        "lerp.Tensor_out",
        "log.out",
        "logaddexp",
        "logaddexp.out",
        "pow.Scalar_out",
        "pow.Tensor_Scalar_out",
        "pow.Tensor_Tensor_out",
        "pow_.Scalar",
        "pow_.Tensor",
        "prod.int_out",
        "rsqrt.out",
        "rsqrt_",
        "sigmoid.out",
        "sin.out",
        "sin_",
        "sinh.out",
        "sinh_",
        "sqrt.out",
        "tan.out",
        "tan_",
        "tanh.out"},
       {kComplexHalf}},
  };
}

} // namespace at::openreg
