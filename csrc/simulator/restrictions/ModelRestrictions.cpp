#include "simulator/restrictions/ModelRestrictions.h"

#include <ATen/Context.h>
#include <ATen/Operators.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/core/ScalarTypeToTypeMeta.h>
#include <c10/util/Exception.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>

#include <algorithm>
#include <atomic>
#include <optional>

#include "aten/native/Arguments.h"
#include "runtime/OpenRegIdentity.h"
#include "simulator/InFront.h"

namespace at::openreg {
namespace {

c10::OperatorHandle find(const std::string& op) {
  const auto handle = c10::Dispatcher::singleton().findSchema(torch::jit::parseName(op));
  TORCH_CHECK(handle, "There is no operator '", op, "'.");
  return *handle;
}

size_t index_of(const c10::OperatorHandle& op, const std::string& argument) {
  const auto index = op.schema().argumentIndexWithName(argument);
  TORCH_CHECK(index, "The operator '", op.operator_name(), "' has no argument '", argument, "'.");
  return static_cast<size_t>(*index);
}

// ---- Refusing

template <class T>
bool contains(const std::vector<T>& values, const T& value) {
  return std::find(values.begin(), values.end(), value) != values.end();
}

// The operator's own kernel refuses a CPU operand with dimensions because of its device. CUDA's kernels look at no
// dtype if there are no elements.
bool is_checked(const Tensor& tensor) {
  return tensor.defined() && (is_device_tensor(tensor) || tensor.dim() == 0) && tensor.sym_numel() != 0;
}

bool holds(const Condition& condition, const c10::IValue& value) {
  if (value.isString()) {
    return contains(condition.texts, value.toStringRef());
  }
  return value.isTensor() && is_checked(value.toTensor()) && contains(condition.dtypes, value.toTensor().scalar_type());
}

std::optional<ScalarType> refused_dtype(const ModelRestriction& restriction, const c10::IValue& value) {
  const auto refuses = [&](ScalarType dtype) {
    return restriction.dtypes.empty() || contains(restriction.dtypes, dtype);
  };
  std::optional<ScalarType> found;
  if (value.isInt()) {
    if (refuses(value.toScalarType())) {
      found = value.toScalarType();
    }
  } else {
    for_each_tensor(value, [&](const Tensor& tensor) {
      // The dtype of a Python number is not checked: the program has not chosen it. For example, 1.5 is float64.
      if (is_checked(tensor) && !tensor.unsafeGetTensorImpl()->is_wrapped_number() && refuses(tensor.scalar_type())) {
        found = tensor.scalar_type();
      }
    });
  }
  return found;
}

[[noreturn]] C10_NOINLINE void raise(const ModelRestriction& restriction, std::optional<ScalarType> dtype) {
  std::string message = restriction.message;
  constexpr std::string_view kDtype = "{dtype}";
  if (const size_t at = message.find(kDtype); at != std::string::npos && dtype) {
    message.replace(at, kDtype.size(), c10::toString(*dtype));
  }
  TORCH_CHECK_NOT_IMPLEMENTED(restriction.error != RestrictionError::NotImplemented, message);
  TORCH_CHECK_TYPE(restriction.error != RestrictionError::Type, message);
  TORCH_CHECK_VALUE(restriction.error != RestrictionError::Value, message);
  TORCH_CHECK(false, message);
}

std::vector<ModelRestriction>& absent_dtypes() {
  static auto* restrictions = new std::vector<ModelRestriction>;
  return *restrictions;
}

class Refusing final : public InFront {
 public:
  Refusing(const c10::OperatorHandle& op, std::vector<ModelRestriction> restrictions) : InFront(op) {
    for (ModelRestriction& restriction : restrictions) {
      const size_t index = restriction.argument.empty() ? 0 : index_of(op, restriction.argument);
      const size_t other = restriction.when.argument.empty() ? 0 : index_of(op, restriction.when.argument);
      restrictions_.push_back({index, other, std::move(restriction)});
    }
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    const c10::IValue* arguments = stack->data() + stack->size() - op.schema().arguments().size();
    for (const auto& [index, other, restriction] : restrictions_) {
      if (!restriction.when.argument.empty() && !holds(restriction.when, arguments[other])) {
        continue;
      }
      if (restriction.argument.empty()) {
        raise(restriction, std::nullopt);
      }
      if (const auto dtype = refused_dtype(restriction, arguments[index])) {
        raise(restriction, dtype);
      }
    }
    next_.callBoxed(op, keys, stack);
  }

 private:
  struct IndexedRestriction {
    size_t index; // of restriction.argument
    size_t other; // of restriction.when.argument
    ModelRestriction restriction;
  };
  std::vector<IndexedRestriction> restrictions_;
};

// ---- A device with few operators

// A dispatch key for which no backend registers a kernel. An operator has a kernel for this key only if PyTorch
// composes the operator of other operators.
constexpr c10::DispatchKey kBare = c10::DispatchKey::PrivateUse2;

class Composite final : public InFront {
 public:
  explicit Composite(const c10::OperatorHandle& op) : InFront(op, kBare) {}

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    next_.callBoxed(op, keys, stack);
  }
};

// ---- TensorFloat-32

// Rounds to the nearest number with 10 bits of mantissa, and rounds ties away from zero, as the PTX instruction
// cvt.rna.tf32.f32 does. Infinities and NaN are kept.
Tensor rounded(const Tensor& tensor) {
  constexpr int kDropped = 13;
  const Tensor bits = at::_ops::view_dtype::call(at::_ops::contiguous::call(tensor, MemoryFormat::Contiguous), kInt);
  const Tensor nearest = at::_ops::bitwise_and_Scalar::call(
      at::_ops::add_Scalar::call(bits, 1 << (kDropped - 1), 1), ~((1 << kDropped) - 1));
  return at::_ops::where_self::call(
      at::_ops::isfinite::call(tensor), at::_ops::view_dtype::call(nearest, kFloat), tensor);
}

class Rounding final : public InFront {
 public:
  Rounding(const c10::OperatorHandle& op, const std::vector<std::string>& arguments, bool convolution)
      : InFront(op), convolution_(convolution) {
    for (const std::string& argument : arguments) {
      indices_.push_back(index_of(op, argument));
    }
  }

  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys, torch::jit::Stack* stack) {
    if (allowed()) {
      c10::IValue* arguments = stack->data() + stack->size() - op.schema().arguments().size();
      for (const size_t index : indices_) {
        if (arguments[index].isTensor() && arguments[index].toTensor().scalar_type() == kFloat) {
          arguments[index] = rounded(arguments[index].toTensor());
        }
      }
    }
    next_.callBoxed(op, keys, stack);
  }

 private:
  // Reads the settings that PyTorch reads before it calls cuDNN and cuBLAS. Does not call allowTF32CuBLAS(), which
  // raises if torch.backends.*.fp32_precision and torch.set_float32_matmul_precision() disagree.
  bool allowed() const {
    const Context& context = globalContext();
    return convolution_ ? context.allowTF32CuDNN(Float32Op::CONV)
                        : context.float32Precision(Float32Backend::CUDA, Float32Op::MATMUL) == Float32Precision::TF32;
  }

  std::vector<size_t> indices_;
  bool convolution_;
};

} // namespace

void refuse(const std::string& op, std::vector<ModelRestriction> restrictions) {
  put_in_front<Refusing>(find(op), std::move(restrictions));
}

void refuse_dtype(ScalarType dtype, RestrictionError error, std::string message) {
  absent_dtypes().push_back({.dtypes = {dtype}, .error = error, .message = std::move(message)});
}

void check_dtype(caffe2::TypeMeta type) {
  const ScalarType dtype = c10::typeMetaToScalarType(type);
  for (const ModelRestriction& restriction : absent_dtypes()) {
    if (restriction.dtypes.front() == dtype) {
      raise(restriction, dtype);
    }
  }
}

namespace {

std::atomic<bool> keeps_only{false};

std::string& message_of_keep_only() {
  static auto* message = new std::string; // a thread of autograd may outlive static destruction
  return *message;
}

std::string with_operator(std::string message, const std::string& name) {
  constexpr std::string_view kOperator = "{operator}";
  return message.replace(message.find(kOperator), kOperator.size(), name);
}

} // namespace

// An operator of aten passes, because keep_only() has put a restriction in front of each kernel of aten that is left
// out. An operator of another namespace is refused here, because it may be registered after the call of keep_only().
void check_kept(const c10::OperatorHandle& op) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      !keeps_only || op.operator_name().getNamespace() == "aten",
      with_operator(message_of_keep_only(), c10::toString(op.operator_name())));
}

void keep_only(const std::vector<std::string>& operators, const std::string& message) {
  message_of_keep_only() = message;
  keeps_only = true;
  auto& dispatcher = c10::Dispatcher::singleton();
  for (const c10::OperatorName& name : dispatcher.getAllOpNames()) {
    const std::string text = c10::toString(name);
    const auto op = dispatcher.findSchema(name);
    if (!op || name.getNamespace() != "aten" || !op->hasComputedKernelForDispatchKey(identity.key) ||
        std::find(operators.begin(), operators.end(), text) != operators.end()) {
      continue;
    }
    if (!op->hasComputedKernelForDispatchKey(kBare)) {
      put_in_front<Refusing>(*op, std::vector<ModelRestriction>{{.message = with_operator(message, text)}});
    } else if (op->hasKernelForDispatchKey(identity.key)) {
      put_in_front<Composite>(*op);
    }
  }
}

void round_to_tf32(const std::string& op, std::vector<std::string> arguments, bool convolution) {
  put_in_front<Rounding>(find(op), std::move(arguments), convolution);
}

} // namespace at::openreg
