#include "simulator/dry/Shapes.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/nonzero.h>

#include <exception>
#include <string_view>

#include "runtime/OpenRegIdentity.h"

namespace at::openreg {
namespace {

FindMetaKernel find_meta_kernel = nullptr;

Tensor meta_of(const Tensor& tensor) {
  // A 0-dim CPU tensor is a number, which meta kernels may read.
  if (!tensor.defined() || tensor.is_meta() || (!is_device_tensor(tensor) && tensor.dim() == 0)) {
    return tensor;
  }
  Tensor meta = at::detail::empty_strided_meta(tensor.sizes(), tensor.strides(), tensor.scalar_type());
  meta._set_conj(tensor.is_conj());
  meta._set_neg(tensor.is_neg());
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    meta.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return meta;
}

c10::IValue meta_of(const c10::IValue& value) {
  if (value.isTensor()) {
    return meta_of(value.toTensor());
  }
  if (value.isTensorList()) {
    c10::List<Tensor> metas;
    for (const Tensor& tensor : value.toTensorList()) {
      metas.push_back(meta_of(tensor));
    }
    return metas;
  }
  if (value.isOptionalTensorList()) {
    c10::List<std::optional<Tensor>> metas;
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorList()) {
      metas.push_back(tensor ? std::optional<Tensor>(meta_of(*tensor)) : std::nullopt);
    }
    return metas;
  }
  if (value.isDevice() && value.toDevice().type() == identity.type) {
    return Device(kMeta);
  }
  return value.isGenerator() ? c10::IValue() : value;
}

// An index that is a mask selects as many elements as the mask has true values. Replaces each mask by its columns of
// indices; the values of a small mask are known.
c10::IValue without_masks(const c10::IValue& indices) {
  c10::List<std::optional<Tensor>> columns;
  for (const std::optional<Tensor>& index : indices.toOptionalTensorList()) {
    if (index && index->defined() && (index->scalar_type() == kBool || index->scalar_type() == kByte)) {
      for (const Tensor& column : at::nonzero(*index).unbind(1)) {
        columns.push_back(std::optional<Tensor>(column));
      }
    } else {
      columns.push_back(index);
    }
  }
  return columns;
}

// The arguments of aten::convolution and aten::convolution_backward, for which there are meta kernels, from those of the
// operators that a backend overrides.
c10::OperatorName adapted(const c10::OperatorHandle& op, MetaStack& arguments) {
  const std::string& name = op.operator_name().name;
  if (name == "aten::convolution_overrideable") {
    return {"aten::convolution", ""};
  }
  if (name == "aten::convolution_backward_overrideable") {
    constexpr int kGradOutput = 0;
    const Tensor grad = arguments[kGradOutput].toTensor();
    arguments.insert(arguments.begin() + 3, c10::List<int64_t>({grad.size(1)})); // bias_sizes
    return {"aten::convolution_backward", ""};
  }
  return op.operator_name();
}

// The registered meta kernel of an operator (set_dry_meta_kernels()). Null: PyTorch's own is asked. PyTorch's expects, as this device
// does, that batch normalization with the running statistics saves them; the CPU's saves none.
const c10::KernelFunction* own_meta_kernel(const c10::OperatorName& name, const MetaStack& arguments) {
  constexpr size_t kTraining = 5;
  if (!find_meta_kernel || (name.name == "aten::native_batch_norm" && !arguments[kTraining].toBool())) {
    return nullptr;
  }
  return find_meta_kernel(name);
}

// A share of the elements: what an operator is assumed to find if its operand has no values.
int64_t some(int64_t count) {
  return (count + 1) / 2;
}

std::optional<MetaStack> assumed_shapes(std::string_view name, const MetaStack& arguments) {
  const auto make = [](IntArrayRef sizes, ScalarType type) { return at::detail::empty_meta(sizes, type); };
  if (arguments.empty() || !arguments[0].isTensor()) {
    return std::nullopt;
  }
  const Tensor self = arguments[0].toTensor();
  const int64_t found = some(self.numel());
  if (name == "aten::nonzero") {
    return MetaStack{make({found, self.dim()}, kLong)};
  }
  if (name == "aten::masked_select") {
    return MetaStack{make({found}, self.scalar_type())};
  }
  if (name == "aten::_unique2" || name == "aten::_unique" || name == "aten::unique_consecutive") {
    MetaStack results{make({found}, self.scalar_type()), make(self.sizes(), kLong)};
    if (name != "aten::_unique") {
      results.emplace_back(make({found}, kLong));
    }
    return results;
  }
  return std::nullopt;
}

} // namespace

void set_dry_meta_kernels(FindMetaKernel find) {
  find_meta_kernel = find;
}

std::optional<ResultShapes> result_shapes(
    const c10::OperatorHandle& op, ArrayRef<c10::IValue> arguments, bool is_assumed) {
  MetaStack metas;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool has_masks = op.schema().name() == "aten::index" && i == 1;
    metas.push_back(meta_of(has_masks ? without_masks(arguments[i]) : arguments[i]));
  }
  const MetaStack given = metas;
  const c10::OperatorName name = adapted(op, metas);
  std::exception_ptr own_error; // in the words of the operators of C++, which are CUDA's
  if (const c10::KernelFunction* const kernel = own_meta_kernel(name, metas)) {
    MetaStack results = metas;
    try {
      kernel->callBoxed(
          c10::Dispatcher::singleton().findSchemaOrThrow(name.name.c_str(), name.overload_name.c_str()),
          c10::DispatchKeySet(c10::DispatchKey::Meta),
          &results);
      return ResultShapes{std::move(results), given};
    } catch (const c10::Error& error) {
      // Such a kernel also refuses, without words, what it does not know.
      if (error.msg().find("Could this error message be improved") == std::string::npos) {
        own_error = std::current_exception();
      }
    } catch (const std::exception&) {
    }
  }
  try {
    MetaStack results = metas;
    c10::Dispatcher::singleton()
        .findSchemaOrThrow(name.name.c_str(), name.overload_name.c_str())
        .redispatchBoxed(c10::DispatchKeySet(c10::DispatchKey::Meta), &results);
    return ResultShapes{std::move(results), given};
  } catch (const std::exception& error) {
    if (!is_assumed) {
      return std::nullopt;
    }
    if (auto results = assumed_shapes(op.schema().name(), given)) {
      return ResultShapes{std::move(*results), given};
    }
    if (own_error) {
      std::rethrow_exception(own_error);
    }
    TORCH_CHECK_NOT_IMPLEMENTED(
        false, "dry execution does not know the shapes of the results of ", op.operator_name(), ": ", error.what());
  }
}

} // namespace at::openreg
