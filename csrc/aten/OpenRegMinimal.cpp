#include <ATen/ops/_reshape_alias_native.h>
#include <ATen/ops/unfold_native.h>
#include <ATen/ops/view_as_complex_native.h>
#include <ATen/ops/view_as_real_native.h>
#include <ATen/ops/view_native.h>
#include <torch/library.h>

#include "native/Fallback.h"
#include "native/Minimal.h"

// The operators that everything else stands on, and the fallback for the rest.
namespace at::openreg {
namespace {

// LITERALINCLUDE START: TORCH_LIBRARY_IMPL DEFAULT
// LITERALINCLUDE START: TORCH_LIBRARY_IMPL
TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  // LITERALINCLUDE START: EMPTY.MEMORY_FORMAT
  m.impl("empty.memory_format", empty_memory_format);
  // LITERALINCLUDE END: EMPTY.MEMORY_FORMAT
  m.impl("empty_strided", empty_strided);
  m.impl("_efficientzerotensor", _efficientzerotensor);
  m.impl("resize_", resize_);

  // Views: PyTorch's own, they only touch sizes and strides.
  m.impl("as_strided", as_strided);
  m.impl("view", at::native::view);
  m.impl("_reshape_alias", at::native::_reshape_alias);
  m.impl("unfold", at::native::unfold);
  m.impl("view_as_real", at::native::view_as_real);
  m.impl("view_as_complex", at::native::view_as_complex);

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
// LITERALINCLUDE END: TORCH_LIBRARY_IMPL DEFAULT

// LITERALINCLUDE START: FALLBACK GLOBAL
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}
// LITERALINCLUDE END: FALLBACK GLOBAL

} // namespace
} // namespace at::openreg
