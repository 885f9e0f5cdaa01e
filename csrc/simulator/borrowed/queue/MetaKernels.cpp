#include "simulator/borrowed/queue/MetaKernels.h"

#include <ATen/MetaFunctions.h>
#include <ATen/Operators.h>

#include <ATen/EmptyTensor.h>
#include <ATen/ExpandUtils.h>
#include <ATen/OpMathType.h>
#include <ATen/TensorIterator.h>
#include <ATen/WrapDimUtils.h>
#include <ATen/ops/result_type_native.h>

#include <algorithm>
#include <unordered_map>

namespace at::openreg {
namespace {

#include <OperatorTraits.inc>

// The type that a function in at::meta takes for a type of the operator's schema: plain integers in place of SymInts.
template <class T>
struct Plain {
  using type = T;
};
template <>
struct Plain<c10::SymInt> {
  using type = int64_t;
};
template <>
struct Plain<c10::SymIntArrayRef> {
  using type = IntArrayRef;
};
template <>
struct Plain<OptionalSymIntArrayRef> {
  using type = OptionalIntArrayRef;
};
template <>
struct Plain<std::optional<c10::SymInt>> {
  using type = std::optional<int64_t>;
};
template <class Result, class... Args>
struct Plain<Result(Args...)> {
  using type = Result(typename Plain<Args>::type...);
};

template <class Op>
using PlainSchema = typename Plain<typename Op::schema>::type;

// Meta kernels in C++ for operators that networks call in every step and whose meta kernel PyTorch has in Python only.
// The shapes, strides and dtypes are those of the CPU kernels' results. If a call fails a TORCH_CHECK here, the call is
// not queued: it has an error, or its results are not known for certain.
namespace shapes {

Tensor contiguous(IntArrayRef sizes, ScalarType dtype) {
  return at::detail::empty_meta(sizes, dtype);
}

Tensor with_format(IntArrayRef sizes, ScalarType dtype, MemoryFormat format) {
  Tensor result = contiguous(sizes, dtype);
  if (format != MemoryFormat::Contiguous) {
    result.unsafeGetTensorImpl()->empty_tensor_restride(format);
  }
  return result;
}

Tensor scalar(const Tensor& self) {
  TORCH_CHECK(self.numel() > 0);
  return contiguous({}, self.scalar_type());
}

// The result that TensorIterator makes for the operands of an elementwise operator.
Tensor elementwise(std::initializer_list<const Tensor*> operands, ScalarType dtype) {
  TensorIteratorConfig config;
  config.add_owned_output(Tensor()).check_all_same_dtype(false).declare_static_dtype_and_device(dtype, kMeta);
  for (const Tensor* operand : operands) {
    config.add_owned_const_input(*operand);
  }
  return config.build().output();
}

Tensor _adaptive_avg_pool2d(const Tensor& self, IntArrayRef output_size) {
  TORCH_CHECK(output_size.size() == 2 && (self.dim() == 3 || self.dim() == 4) && self.numel() > 0);
  std::vector<int64_t> sizes = self.sizes().vec();
  std::copy(output_size.begin(), output_size.end(), sizes.end() - 2);
  return with_format(sizes, self.scalar_type(), self.suggest_memory_format());
}

Tensor abs(const Tensor& self) {
  return elementwise({&self}, toRealValueType(self.scalar_type()));
}

// Makes a result that is a view of contiguous memory, in which the dimensions `first` and `first + 1` are transposed.
Tensor transposed(IntArrayRef sizes, ScalarType dtype, size_t first) {
  std::vector<int64_t> inner = sizes.vec();
  std::swap(inner[first], inner[first + 1]);
  Tensor result = contiguous(inner, dtype);
  std::vector<int64_t> strides = result.strides().vec();
  std::swap(strides[first], strides[first + 1]);
  result.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return result;
}

// Makes a result of the CPU's attention kernels. The result has the dimensions batch, head, position, feature
// (logsumexp: without feature). The memory has the order batch, position, head, feature.
Tensor heads(IntArrayRef sizes, ScalarType dtype) {
  return transposed(sizes, dtype, 1);
}

Tensor dense_like(const Tensor& tensor) {
  Tensor result = contiguous(tensor.sizes(), tensor.scalar_type());
  result.unsafeGetTensorImpl()->set_sizes_and_strides(
      tensor.sizes(),
      tensor.is_non_overlapping_and_dense() ? tensor.strides().vec()
                                            : infer_dense_strides(tensor.sizes(), tensor.strides()));
  return result;
}

// The output, the bag of each index, the size of each bag, and the largest indices.
using EmbeddingBag = std::tuple<Tensor, Tensor, Tensor, Tensor>;

// `keeps_sizes_of_sums`: of sums there is a size for each bag, and not for each offset.
template <bool keeps_sizes_of_sums>
EmbeddingBag embedding_bag(
    const Tensor& weight,
    const Tensor& indices,
    const Tensor& offsets,
    bool,
    int64_t mode,
    bool,
    const std::optional<Tensor>& per_sample_weights,
    bool include_last_offset,
    int64_t padding_idx) {
  enum { Sum, Mean, Max };
  TORCH_CHECK(weight.dim() == 2 && indices.dim() == 1 && offsets.dim() == 1 && mode >= Sum && mode <= Max);
  TORCH_CHECK(isIntegralType(indices.scalar_type(), false) && isIntegralType(offsets.scalar_type(), false));
  const int64_t bags = offsets.size(0) - (include_last_offset ? 1 : 0);
  TORCH_CHECK(bags > 0);
  const ScalarType dtype = promoteTypes(indices.scalar_type(), offsets.scalar_type());
  const bool has_weights = per_sample_weights && per_sample_weights->defined();
  TORCH_CHECK(!has_weights || (mode == Sum && per_sample_weights->sizes() == indices.sizes()));
  // The CPU has a kernel for such sums that does not need the bag of each index.
  const bool is_fast = mode == Sum && (weight.scalar_type() == kFloat || isReducedFloatingType(weight.scalar_type())) &&
                       weight.stride(1) == 1 && padding_idx < 0 && (!has_weights || per_sample_weights->stride(0) == 1);
  const int64_t of_sizes = mode == Sum && !keeps_sizes_of_sums ? offsets.size(0) : bags;
  const Tensor largest = mode == Max ? contiguous({bags, weight.size(1)}, dtype) : contiguous({of_sizes}, dtype);
  return {
      contiguous({bags, weight.size(1)}, weight.scalar_type()),
      contiguous({is_fast ? 0 : indices.size(0)}, dtype),
      contiguous({of_sizes}, dtype),
      largest};
}

constexpr auto& _embedding_bag = embedding_bag<true>;
constexpr auto& _embedding_bag_forward_only = embedding_bag<false>;

Tensor _logcumsumexp(const Tensor& self, int64_t dim) {
  maybe_wrap_dim(dim, self.dim());
  TORCH_CHECK(isFloatingType(self.scalar_type()) || isComplexType(self.scalar_type()));
  return contiguous(self.sizes(), self.scalar_type());
}

std::tuple<Tensor, Tensor> _fused_dropout(const Tensor& self, double, std::optional<Generator>) {
  const Tensor result = dense_like(self);
  Tensor mask = contiguous(self.sizes(), kByte);
  mask.unsafeGetTensorImpl()->set_sizes_and_strides(result.sizes(), result.strides());
  return {result, mask};
}

std::tuple<Tensor, Tensor> _scaled_dot_product_flash_attention_for_cpu(
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    double dropout_p,
    bool,
    const std::optional<Tensor>&,
    std::optional<double>) {
  TORCH_CHECK(query.dim() == 4 && key.dim() == 4 && value.dim() == 4 && dropout_p == 0 && query.numel() > 0);
  TORCH_CHECK(query.dtype() == key.dtype() && key.dtype() == value.dtype() && query.size(3) == value.size(3));
  return {dense_like(query), heads(query.sizes().slice(0, 3), toOpMathType(query.scalar_type()))};
}

std::tuple<Tensor, Tensor, Tensor> _scaled_dot_product_flash_attention_for_cpu_backward(
    const Tensor& grad_out,
    const Tensor& query,
    const Tensor& key,
    const Tensor& value,
    const Tensor&,
    const Tensor&,
    double,
    bool,
    const std::optional<Tensor>&,
    std::optional<double>) {
  TORCH_CHECK(grad_out.defined() && query.dim() == 4 && key.dim() == 4 && value.dim() == 4);
  const auto gradient = [](const Tensor& tensor) { return heads(tensor.sizes(), tensor.scalar_type()); };
  return {gradient(query), gradient(key), gradient(value)};
}

MemoryFormat convolution_format(const Tensor& input, const Tensor& weight) {
  const auto format = input.suggest_memory_format();
  return format != MemoryFormat::Contiguous ? format : weight.suggest_memory_format();
}

Tensor convolution(
    const Tensor& input,
    const Tensor& weight,
    const std::optional<Tensor>& bias,
    IntArrayRef stride,
    IntArrayRef padding,
    IntArrayRef dilation,
    bool transposed,
    IntArrayRef output_padding,
    int64_t groups) {
  const int64_t dim = input.dim();
  for (const IntArrayRef& list : {stride, padding, dilation, output_padding}) {
    TORCH_CHECK(std::ssize(list) == dim - 2); // the operator also accepts lists of one element
  }
  const int64_t channels = transposed ? weight.size(1) * groups : weight.size(0);
  TORCH_CHECK(
      dim >= 3 && weight.dim() == dim && groups > 0 && input.numel() > 0 && weight.numel() > 0 &&
      input.size(1) == (transposed ? weight.size(0) : weight.size(1) * groups) && channels % groups == 0 &&
      (!bias || !bias->defined() || (bias->dim() == 1 && bias->size(0) == channels)));
  std::vector<int64_t> sizes{input.size(0), channels};
  for (int64_t i = 0; i < dim - 2; ++i) {
    const int64_t in = input.size(i + 2), reach = dilation[i] * (weight.size(i + 2) - 1);
    TORCH_CHECK(stride[i] > 0 && dilation[i] > 0 && padding[i] >= 0);
    sizes.push_back(
        transposed ? (in - 1) * stride[i] - 2 * padding[i] + reach + output_padding[i] + 1
                   : (in + 2 * padding[i] - reach - 1) / stride[i] + 1);
    TORCH_CHECK(sizes.back() > 0 && (transposed || in + 2 * padding[i] > reach));
  }
  return with_format(sizes, input.scalar_type(), convolution_format(input, weight));
}

std::tuple<Tensor, Tensor, Tensor> convolution_backward(
    const Tensor& grad_output,
    const Tensor& input,
    const Tensor& weight,
    OptionalIntArrayRef,
    IntArrayRef,
    IntArrayRef,
    IntArrayRef,
    bool,
    IntArrayRef,
    int64_t,
    std::array<bool, 3> output_mask) {
  TORCH_CHECK(input.dim() >= 3 && input.numel() > 0 && weight.numel() > 0 && grad_output.numel() > 0);
  const auto format = convolution_format(input, weight);
  const auto gradient = [&](bool wanted, const Tensor& tensor) {
    return wanted ? with_format(tensor.sizes(), tensor.scalar_type(), format) : Tensor();
  };
  return {
      gradient(output_mask[0], input),
      gradient(output_mask[1], weight),
      output_mask[2] ? contiguous({grad_output.size(1)}, grad_output.scalar_type()) : Tensor()};
}

Tensor dot(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(self.dim() == 1 && other.dim() == 1 && self.sizes() == other.sizes() && self.dtype() == other.dtype());
  TORCH_CHECK(!self.is_conj() && !other.is_conj()); // the kernel would return a lazily conjugated result
  return contiguous({}, self.scalar_type());
}

Tensor embedding_dense_backward(const Tensor& grad_output, const Tensor& indices, int64_t num_weights, int64_t, bool) {
  TORCH_CHECK(grad_output.dim() == indices.dim() + 1);
  return contiguous({num_weights, grad_output.size(-1)}, grad_output.scalar_type());
}

std::tuple<Tensor, Tensor> geqrf(const Tensor& self) {
  TORCH_CHECK(self.dim() >= 2);
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes.pop_back();
  sizes.back() = std::min(self.size(-2), self.size(-1));
  return {transposed(self.sizes(), self.scalar_type(), self.dim() - 2), contiguous(sizes, self.scalar_type())};
}

Tensor index_select(const Tensor& self, int64_t dim, const Tensor& index) {
  TORCH_CHECK(self.dim() > 0 && index.dim() <= 1 && (index.scalar_type() == kLong || index.scalar_type() == kInt));
  std::vector<int64_t> sizes = self.sizes().vec();
  sizes[maybe_wrap_dim(dim, self.dim())] = index.numel();
  return contiguous(sizes, self.scalar_type());
}

Tensor isnan(const Tensor& self) {
  return elementwise({&self}, kBool);
}

Tensor logical_and(const Tensor& self, const Tensor& other) {
  return elementwise({&self, &other}, kBool);
}

Tensor logical_not(const Tensor& self) {
  return elementwise({&self}, kBool);
}

Tensor logical_or(const Tensor& self, const Tensor& other) {
  return elementwise({&self, &other}, kBool);
}

Tensor max(const Tensor& self) {
  return scalar(self);
}

Tensor mean(const Tensor& self, std::optional<ScalarType> dtype) {
  return at::meta::mean(self, OptionalIntArrayRef(IntArrayRef()), false, dtype);
}

Tensor min(const Tensor& self) {
  return scalar(self);
}

Tensor mse_loss_backward(const Tensor& grad_output, const Tensor& self, const Tensor& target, int64_t) {
  TORCH_CHECK(self.scalar_type() == target.scalar_type() && self.scalar_type() == grad_output.scalar_type());
  return elementwise({&self, &target, &grad_output}, self.scalar_type());
}

// Whether `input` has a dtype of reduced precision, such as float16, and `parameter` is float32.
bool is_mixed(const Tensor& input, const Tensor& parameter) {
  return isReducedFloatingType(input.scalar_type()) && parameter.defined() && parameter.scalar_type() == kFloat;
}

std::tuple<Tensor, Tensor, Tensor> native_batch_norm(
    const Tensor& input,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    const std::optional<Tensor>& running_mean,
    const std::optional<Tensor>& running_var,
    bool training,
    double,
    double) {
  int64_t contiguous_parameters = 0;
  for (const auto* parameter : {&weight, &bias, &running_mean, &running_var}) {
    contiguous_parameters += !parameter->has_value() || !(*parameter)->defined() || (*parameter)->is_contiguous();
  }
  const auto format = input.suggest_memory_format();
  TORCH_CHECK(
      input.dim() >= 2 && input.numel() > 0 && input.is_contiguous(format) && contiguous_parameters == 4 &&
      !isReducedFloatingType(input.scalar_type()));
  const Tensor output = with_format(input.sizes(), input.scalar_type(), format);
  const int64_t channels = training ? input.size(1) : 0;
  return {output, contiguous({channels}, input.scalar_type()), contiguous({channels}, input.scalar_type())};
}

std::tuple<Tensor, Tensor, Tensor> _native_batch_norm_legit(
    const Tensor& input,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    Tensor& running_mean,
    Tensor& running_var,
    bool training,
    double momentum,
    double eps) {
  return native_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps);
}

std::tuple<Tensor, Tensor, Tensor> _native_batch_norm_legit_no_stats(
    const Tensor& input,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    bool training,
    double momentum,
    double eps) {
  return native_batch_norm(input, weight, bias, {}, {}, training, momentum, eps);
}

std::tuple<Tensor, Tensor, Tensor> native_batch_norm_backward(
    const Tensor& grad_out,
    const Tensor& input,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>&,
    const std::optional<Tensor>&,
    const std::optional<Tensor>&,
    const std::optional<Tensor>&,
    bool,
    double,
    std::array<bool, 3> output_mask) {
  const auto format = input.suggest_memory_format();
  TORCH_CHECK(
      input.dim() >= 2 && input.numel() > 0 && input.is_contiguous(format) && grad_out.is_contiguous(format) &&
      !isReducedFloatingType(input.scalar_type()) && weight.has_value() && weight->defined());
  const Tensor grad_input = output_mask[0] ? with_format(input.sizes(), input.scalar_type(), format) : Tensor();
  const auto parameter = [&](bool wanted) {
    return wanted ? contiguous({input.size(1)}, input.scalar_type()) : Tensor();
  };
  return {grad_input, parameter(output_mask[1]), parameter(output_mask[2])};
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm(
    const Tensor& input,
    IntArrayRef normalized_shape,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    double) {
  const size_t outer = input.dim() - normalized_shape.size();
  TORCH_CHECK(
      !normalized_shape.empty() && normalized_shape.size() <= static_cast<size_t>(input.dim()) &&
      input.sizes().slice(outer) == normalized_shape);
  for (const auto* parameter : {&weight, &bias}) {
    TORCH_CHECK(!parameter->has_value() || !(*parameter)->defined() || (*parameter)->sizes() == normalized_shape);
  }
  const bool mixed = is_mixed(input, weight.value_or(Tensor())) || is_mixed(input, bias.value_or(Tensor()));
  const ScalarType statistics = mixed ? kFloat : input.scalar_type();
  std::vector<int64_t> sizes(input.dim(), 1);
  std::copy_n(input.sizes().begin(), outer, sizes.begin());
  return {contiguous(input.sizes(), input.scalar_type()), contiguous(sizes, statistics), contiguous(sizes, statistics)};
}

std::tuple<Tensor, Tensor, Tensor> native_layer_norm_backward(
    const Tensor&,
    const Tensor& input,
    IntArrayRef,
    const Tensor&,
    const Tensor&,
    const std::optional<Tensor>& weight,
    const std::optional<Tensor>& bias,
    std::array<bool, 3> output_mask) {
  const auto like = [&](bool wanted, const Tensor& tensor) {
    TORCH_CHECK(!wanted || (tensor.defined() && tensor.is_contiguous()));
    return wanted ? contiguous(tensor.sizes(), tensor.scalar_type()) : Tensor();
  };
  return {
      like(output_mask[0], input),
      like(output_mask[1], weight.value_or(Tensor())),
      like(output_mask[2], bias.value_or(Tensor()))};
}

Tensor relu(const Tensor& self) {
  TORCH_CHECK(self.scalar_type() != kBool);
  return elementwise({&self}, self.scalar_type());
}

Tensor sum(const Tensor& self, std::optional<ScalarType> dtype) {
  return at::meta::sum(self, OptionalIntArrayRef(IntArrayRef()), false, dtype);
}

Tensor where_self(const Tensor& condition, const Tensor& self, const Tensor& other) {
  TORCH_CHECK(condition.scalar_type() == kBool && condition.is_meta() && self.is_meta() && other.is_meta());
  return elementwise({&condition, &self, &other}, at::native::result_type(self, other));
}

} // namespace shapes

using Kernels = std::unordered_map<c10::OperatorName, c10::KernelFunction>;

template <
    class Function> // one instance for each type, not for each operator, because an instance takes long to compile
void add(Kernels& kernels, const char* name, const char* overload, Function* kernel) {
  kernels.emplace(c10::OperatorName(name, overload), c10::KernelFunction::makeFromUnboxedRuntimeFunction(kernel));
}

Kernels all_kernels() {
  Kernels kernels;
#define META_KERNEL(OP, FUNCTION)  \
  add(kernels,                     \
      at::_ops::OP::name,          \
      at::_ops::OP::overload_name, \
      static_cast<PlainSchema<at::_ops::OP>*>(&at::meta::FUNCTION));
  OPENREG_META_KERNELS(META_KERNEL)
#undef META_KERNEL
#define META_KERNEL(OP) \
  add(kernels, at::_ops::OP::name, at::_ops::OP::overload_name, static_cast<PlainSchema<at::_ops::OP>*>(&shapes::OP));
  META_KERNEL(_adaptive_avg_pool2d)
  META_KERNEL(_embedding_bag)
  META_KERNEL(_embedding_bag_forward_only)
  META_KERNEL(_fused_dropout)
  META_KERNEL(_logcumsumexp)
  META_KERNEL(_native_batch_norm_legit)
  META_KERNEL(_native_batch_norm_legit_no_stats)
  META_KERNEL(_scaled_dot_product_flash_attention_for_cpu)
  META_KERNEL(_scaled_dot_product_flash_attention_for_cpu_backward)
  META_KERNEL(abs)
  META_KERNEL(convolution)
  META_KERNEL(convolution_backward)
  META_KERNEL(dot)
  META_KERNEL(embedding_dense_backward)
  META_KERNEL(geqrf)
  META_KERNEL(index_select)
  META_KERNEL(isnan)
  META_KERNEL(logical_and)
  META_KERNEL(logical_not)
  META_KERNEL(logical_or)
  META_KERNEL(max)
  META_KERNEL(mean)
  META_KERNEL(min)
  META_KERNEL(mse_loss_backward)
  META_KERNEL(native_batch_norm)
  META_KERNEL(native_batch_norm_backward)
  META_KERNEL(native_layer_norm)
  META_KERNEL(native_layer_norm_backward)
  META_KERNEL(relu)
  META_KERNEL(sum)
  META_KERNEL(where_self)
#undef META_KERNEL
  return kernels;
}

} // namespace

const c10::KernelFunction* meta_kernel(const c10::OperatorName& name) {
  static const auto* kernels = new Kernels(all_kernels()); // made at the first call, not at import
  const auto found = kernels->find(name);
  return found == kernels->end() ? nullptr : &found->second;
}

} // namespace at::openreg
