#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/function_schema.h>
#include <ATen/core/ivalue.h>

// Functions for boxed arguments (c10::IValue).
namespace at::openreg {

// Calls `fn` with every tensor in `value`: a Tensor, Tensor[], or Tensor?[] argument.
template <class Fn>
void for_each_tensor(const c10::IValue& value, const Fn& fn) {
  if (value.isTensor()) {
    fn(value.toTensor());
  } else if (value.isTensorList()) {
    for (const Tensor& tensor : value.toTensorList()) {
      fn(tensor);
    }
  } else if (value.isOptionalTensorList()) {
    for (const std::optional<Tensor>& tensor : value.toOptionalTensorList()) {
      if (tensor) {
        fn(*tensor);
      }
    }
  }
}

inline bool is_generator(const c10::Argument& argument) {
  const auto type = argument.type();
  const auto* optional = type->castRaw<c10::OptionalType>();
  return (optional ? optional->getElementType()->kind() : type->kind()) == c10::TypeKind::GeneratorType;
}

} // namespace at::openreg
