#pragma once

#include <ATen/core/TensorBase.h>
#include <c10/core/TensorImpl.h>

// Tensors that are more than one strided block of memory: sparse COO, sparse compressed, quantized, nested. Each has a
// TensorImpl and a dispatch key of its own (SparsePrivateUse1, ...), and is made of strided *components*.
namespace at::openreg {

constexpr c10::DispatchKeySet kLayoutKeys({
    c10::DispatchKey::Sparse,
    c10::DispatchKey::SparseCsr,
    c10::DispatchKey::Quantized,
    c10::DispatchKey::NestedTensor,
});

inline bool has_components(const c10::TensorImpl& tensor) {
  return tensor.key_set().has_any(kLayoutKeys);
}

inline bool is_sparse_layout(const c10::TensorImpl& tensor) {
  return tensor.key_set().has_any(c10::DispatchKeySet({c10::DispatchKey::Sparse, c10::DispatchKey::SparseCsr}));
}

// Whether either of two tensors consists of components.
inline bool have_components(const at::TensorBase& first, const at::TensorBase& second) {
  return (first.key_set() | second.key_set()).has_any(kLayoutKeys);
}

} // namespace at::openreg
