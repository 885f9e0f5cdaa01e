#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/alias_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "aten/native/Minimal.h"
#include "runtime/OpenRegBackendMeta.h"

// Registers the minimal set: the operators with which tensors are made, viewed, copied and read. Most other operators
// need these.
namespace at::openreg {
namespace {

// The kernel of an operator that returns a view. It gives the view the BackendMeta of `self`, whose memory the view
// shares.
template <auto view>
struct WithBackendMeta;

template <class... Args, Tensor (*view)(const Tensor&, Args...)>
struct WithBackendMeta<view> {
  static Tensor call(const Tensor& self, Args... args) {
    Tensor result = view(self, args...);
    c10::openreg::carry_backend_meta(*self.unsafeGetTensorImpl(), *result.unsafeGetTensorImpl());
    return result;
  }
};

// LITERALINCLUDE START: TORCH_LIBRARY_IMPL
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty_memory_format);
  m.impl("empty_strided", empty_strided);
  m.impl("_efficientzerotensor", _efficientzerotensor);
  m.impl("resize_", resize_);

  // Views: nearly all are PyTorch's own functions. They make a tensor over the same memory and read no element.
  m.impl("as_strided", WithBackendMeta<as_strided>::call);
  m.impl("view", WithBackendMeta<at::native::view>::call);
  m.impl("view.dtype", WithBackendMeta<at::native::view_dtype>::call);
  m.impl("_reshape_alias", WithBackendMeta<at::native::_reshape_alias>::call);
  m.impl("unfold", WithBackendMeta<at::native::unfold>::call);
  m.impl("view_as_real", WithBackendMeta<at::native::view_as_real>::call);
  m.impl("view_as_complex", WithBackendMeta<at::native::view_as_complex>::call);
  m.impl("alias", WithBackendMeta<at::native::alias>::call);

  m.impl("set_", set_);
  m.impl("set_.source_Tensor", set_source_Tensor_);
  m.impl("set_.source_Storage", set_source_Storage_);
  m.impl("set_.source_Storage_storage_offset", set_source_Storage_storage_offset_);

  m.impl("copy_", copy_);
  m.impl("_copy_from", _copy_from);
  m.impl("_copy_from_and_resize", _copy_from_and_resize);
  m.impl("_local_scalar_dense", _local_scalar_dense);

  m.impl("_has_compatible_shallow_copy_type", _has_compatible_shallow_copy_type);
  m.impl("record_stream", record_stream);
}
// LITERALINCLUDE END: TORCH_LIBRARY_IMPL

} // namespace
} // namespace at::openreg
