#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include "aten/native/Layouts.h"

// Functions for sparse, quantized and nested tensors. Such a tensor consists of *components*: strided tensors, such as
// the indices and the values of a sparse tensor. The elements of a quantized or nested tensor are one component: a
// tensor of bytes.
namespace at::openreg {

using ComponentFn = c10::function_ref<Tensor(const Tensor&)>;

// Makes one more reference to `tensor`. If the tensor has a Python object, PyTorch takes the GIL when the second
// reference is made.
inline Tensor new_reference(const TensorImpl* tensor) {
  using Pointer = c10::intrusive_ptr<TensorImpl, c10::UndefinedTensorImpl>;
  return Tensor(Pointer::reclaim_copy(const_cast<TensorImpl*>(tensor)));
}

// Returns a tensor of the same layout on `backend`, in which `fn(component)` replaces each component. A nested tensor's
// tables of sizes, strides and offsets stay in host memory, as PyTorch requires.
Tensor map_components(const Tensor& tensor, c10::BackendComponent backend, ComponentFn fn);

// Calls `fn` with each component, or with the tensor itself if it has none.
void for_each_component(const TensorImpl& tensor, c10::function_ref<void(const TensorImpl&)> fn);

// `from` is the alias of `to`. An in-place operator has changed `from`. Gives `to` the sizes of `from`, and
// `fn(component)` for each component of `from`. The elements of a quantized tensor need no call of `fn`, because `from`
// and `to` share them. A nested tensor stays as it is.
void write_back_components(const Tensor& from, const Tensor& to, ComponentFn fn);

} // namespace at::openreg
