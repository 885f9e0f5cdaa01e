#pragma once

#include <ATen/core/Tensor.h>
#include <c10/util/FunctionRef.h>

#include "../aten/native/Layouts.h"

// The components of tensors that are more than one strided block of memory.
namespace at::openreg {

using ComponentFn = c10::function_ref<Tensor(const Tensor&)>;

// Makes one more reference to `tensor`. If the tensor has a Python object, PyTorch takes the GIL when the second
// reference is made.
inline Tensor new_reference(const TensorImpl* tensor) {
  using Pointer = c10::intrusive_ptr<TensorImpl, c10::UndefinedTensorImpl>;
  return Tensor(Pointer::reclaim_copy(const_cast<TensorImpl*>(tensor)));
}

// A tensor of the same layout on `backend`, each component replaced by `fn(component)`. A nested tensor's table of
// sizes stays in host memory, as PyTorch requires.
Tensor map_components(const Tensor& tensor, c10::BackendComponent backend, ComponentFn fn);

// Calls `fn` with each component, or with the tensor itself if it has none.
void for_each_component(const TensorImpl& tensor, c10::function_ref<void(const TensorImpl&)> fn);

// `from` is the alias of `to`, and an in-place operator has changed it. Gives `to` the same components, each replaced
// by `fn(component)`, and the same sizes.
void write_back_components(const Tensor& from, const Tensor& to, ComponentFn fn);

} // namespace at::openreg
