#include "simulator/ResultShapes.h"

#include <ATen/EmptyTensor.h>
#include <ATen/ops/nonzero.h>

#include <exception>

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

// The registered meta kernel of an operator (set_meta_kernels()). Null: PyTorch's own is asked. PyTorch's expects, as this
// device does, that batch normalization with the running statistics saves them; the CPU's saves none.
const c10::KernelFunction* own_meta_kernel(
    const c10::OperatorName& name, const MetaStack& arguments, bool is_computed) {
  constexpr size_t kTraining = 5;
  const bool has_statistics = name == c10::OperatorName("aten::native_batch_norm", "") ||
                              name == c10::OperatorName("aten::_native_batch_norm_legit", "");
  const bool saves_none = has_statistics && !arguments[kTraining].toBool();
  return find_meta_kernel && (is_computed || !saves_none) ? find_meta_kernel(name) : nullptr;
}

} // namespace

void set_meta_kernels(FindMetaKernel find) {
  find_meta_kernel = find;
}

MetaStack meta_arguments(const c10::OperatorHandle& op, ArrayRef<c10::IValue> arguments) {
  MetaStack metas;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const bool has_masks = op.schema().name() == "aten::index" && i == 1;
    metas.push_back(meta_of(has_masks ? without_masks(arguments[i]) : arguments[i]));
  }
  return metas;
}

ResultShapes result_shapes(const c10::OperatorHandle& op, const MetaStack& arguments, bool is_computed) {
  MetaStack adapted_arguments = arguments;
  const c10::OperatorName name = adapted(op, adapted_arguments);
  const auto asked = c10::Dispatcher::singleton().findSchemaOrThrow(name.name.c_str(), name.overload_name.c_str());
  constexpr c10::DispatchKeySet kMeta(c10::DispatchKey::Meta);
  std::exception_ptr own_error; // in the words of the operators of C++, which are CUDA's
  if (const c10::KernelFunction* const kernel = own_meta_kernel(name, adapted_arguments, is_computed)) {
    MetaStack results = adapted_arguments;
    try {
      kernel->callBoxed(asked, kMeta, &results);
      return {std::move(results), arguments};
    } catch (const c10::Error& error) {
      // Such a kernel also refuses, without words, what it does not know.
      if (error.msg().find("Could this error message be improved") == std::string::npos) {
        own_error = std::current_exception();
      }
    } catch (const std::exception&) {
    }
  }
  try {
    MetaStack results = std::move(adapted_arguments);
    asked.redispatchBoxed(kMeta, &results);
    return {std::move(results), arguments};
  } catch (const std::exception&) {
    if (own_error) {
      std::rethrow_exception(own_error);
    }
    throw;
  }
}

} // namespace at::openreg
