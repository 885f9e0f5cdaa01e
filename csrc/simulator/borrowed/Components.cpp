#include "simulator/borrowed/Components.h"

#include <ATen/NestedTensorImpl.h>
#include <ATen/SparseCsrTensorImpl.h>
#include <ATen/SparseTensorImpl.h>
#include <ATen/quantized/QTensorImpl.h>
#include <ATen/quantized/Quantizer.h>
#include <c10/core/DeviceGuard.h>

#include "runtime/OpenRegIdentity.h"
#include "simulator/borrowed/KernelAllocations.h"

namespace at::openreg {
namespace {

c10::DispatchKeySet key_set(c10::DispatchKey functionality, c10::BackendComponent backend) {
  return c10::DispatchKeySet(c10::toRuntimePerBackendFunctionalityKey(functionality, backend));
}

template <class Impl>
Impl& impl_of(const Tensor& tensor) {
  return *static_cast<Impl*>(tensor.unsafeGetTensorImpl());
}

bool is_compressed(const Tensor& tensor) {
  return tensor.key_set().has_any(c10::DispatchKeySet(c10::DispatchKey::SparseCsr));
}

Tensor map_coo(const Tensor& tensor, c10::BackendComponent backend, ComponentFn fn) {
  const auto& from = impl_of<SparseTensorImpl>(tensor);
  const Tensor indices = fn(from.indices()), values = fn(from.values());
  const c10::OptionalDeviceGuard guard(
      values.device()); // SparseTensorImpl starts with components on the current device
  Tensor mapped = at::detail::make_tensor<SparseTensorImpl>(key_set(c10::DispatchKey::Sparse, backend), tensor.dtype());
  auto& to = impl_of<SparseTensorImpl>(mapped);
  to.raw_resize_(from.sparse_dim(), from.dense_dim(), from.sizes());
  to.set_indices_and_values_unsafe(indices, values);
  to.set_coalesced(from.coalesced());
  return mapped;
}

Tensor map_compressed(const Tensor& tensor, c10::BackendComponent backend, ComponentFn fn) {
  const auto& from = impl_of<SparseCsrTensorImpl>(tensor);
  const Tensor values = fn(from.values());
  Tensor mapped = at::detail::make_tensor<SparseCsrTensorImpl>(
      key_set(c10::DispatchKey::SparseCsr, backend), values.device(), tensor.layout(), tensor.dtype());
  impl_of<SparseCsrTensorImpl>(mapped).set_member_tensors(
      fn(from.compressed_indices()), fn(from.plain_indices()), values, tensor.sizes());
  return mapped;
}

QuantizerPtr map_quantizer(const QuantizerPtr& quantizer, ComponentFn fn) {
  const auto* per_channel = dynamic_cast<const PerChannelAffineQuantizer*>(quantizer.get());
  return per_channel ? make_per_channel_affine_quantizer(
                           fn(per_channel->scales()),
                           fn(per_channel->zero_points()),
                           per_channel->axis(),
                           per_channel->scalar_type())
                     : quantizer;
}

// All bytes of the storage of `tensor`, as a dense uint8 tensor of one dimension.
Tensor bytes_of(const Tensor& tensor) {
  const c10::DispatchKeySet keys =
      key_set(c10::DispatchKey::Dense, tensor.is_cpu() ? c10::BackendComponent::CPUBit : identity.backend);
  Tensor bytes = at::detail::make_tensor<TensorImpl>(
      c10::TensorImpl::VIEW, c10::Storage(tensor.storage()), keys, caffe2::TypeMeta::Make<uint8_t>());
  bytes.unsafeGetTensorImpl()->set_sizes_contiguous({static_cast<int64_t>(tensor.storage().nbytes())});
  return bytes;
}

Tensor map_quantized(const Tensor& tensor, c10::BackendComponent backend, ComponentFn fn) {
  Tensor mapped = at::detail::make_tensor<QTensorImpl>(
      c10::Storage(fn(bytes_of(tensor)).storage()),
      key_set(c10::DispatchKey::Quantized, backend),
      tensor.dtype(),
      map_quantizer(impl_of<QTensorImpl>(tensor).quantizer(), fn));
  mapped.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides(), tensor.storage_offset());
  return mapped;
}

Tensor map_nested(const Tensor& tensor, c10::BackendComponent backend, ComponentFn fn) {
  const auto& from = impl_of<at::native::NestedTensorImpl>(tensor);
  // The tables of sizes, strides and offsets must be host memory, although the running kernel may allocate device
  // memory.
  const c10::openreg::HostAllocations on_host;
  const bool is_for_device = backend != c10::BackendComponent::CPUBit;
  const auto table = [&](const Tensor& sizes) { return is_for_device ? sizes.clone() : sizes; };
  const c10::DispatchKeySet keys =
      c10::DispatchKeySet(c10::DispatchKey::NestedTensor) | key_set(c10::DispatchKey::NestedTensor, backend);
  return at::detail::make_tensor<at::native::NestedTensorImpl>(
      c10::Storage(fn(bytes_of(tensor)).storage()),
      keys | c10::DispatchKeySet(c10::DispatchKey::AutogradNestedTensor),
      tensor.dtype(),
      table(from.get_nested_sizes()),
      table(from.get_nested_strides()),
      table(from.get_storage_offsets()));
}

} // namespace

Tensor map_components(const Tensor& tensor, c10::BackendComponent backend, ComponentFn fn) {
  if (tensor.is_nested()) {
    return map_nested(tensor, backend, fn);
  }
  if (tensor.is_quantized()) {
    return map_quantized(tensor, backend, fn);
  }
  return tensor.is_sparse() ? map_coo(tensor, backend, fn) : map_compressed(tensor, backend, fn);
}

void for_each_component(const TensorImpl& impl, c10::function_ref<void(const TensorImpl&)> fn) {
  // Most tensors have no components, and need no second reference, which could take the GIL.
  if (!has_components(impl)) {
    fn(impl);
    return;
  }
  const Tensor tensor = new_reference(&impl);
  const auto each = [&](const Tensor& component) { fn(*component.unsafeGetTensorImpl()); };
  if (tensor.is_sparse()) {
    each(impl_of<SparseTensorImpl>(tensor).indices());
    each(impl_of<SparseTensorImpl>(tensor).values());
  } else if (is_compressed(tensor)) {
    const auto& impl = impl_of<SparseCsrTensorImpl>(tensor);
    each(impl.compressed_indices());
    each(impl.plain_indices());
    each(impl.values());
  } else {
    each(bytes_of(tensor));
    if (tensor.is_quantized()) {
      map_quantizer(impl_of<QTensorImpl>(tensor).quantizer(), [&](const Tensor& parameter) {
        each(parameter);
        return parameter;
      });
    }
  }
}

void write_back_components(const Tensor& from, const Tensor& to, ComponentFn fn) {
  if (from.is_sparse()) {
    auto& source = impl_of<SparseTensorImpl>(from);
    auto& target = impl_of<SparseTensorImpl>(to);
    target.raw_resize_(source.sparse_dim(), source.dense_dim(), source.sizes());
    target.set_indices_and_values_unsafe(fn(source.indices()), fn(source.values()));
    target.set_coalesced(source.coalesced());
  } else if (is_compressed(from)) {
    auto& source = impl_of<SparseCsrTensorImpl>(from);
    impl_of<SparseCsrTensorImpl>(to).set_member_tensors(
        fn(source.compressed_indices()), fn(source.plain_indices()), fn(source.values()), from.sizes());
  } else if (from.is_quantized()) {
    auto& target = impl_of<QTensorImpl>(to);
    target.set_sizes_and_strides(from.sizes(), from.strides(), from.storage_offset());
    target.set_quantizer_(map_quantizer(impl_of<QTensorImpl>(from).quantizer(), fn));
  }
}

} // namespace at::openreg
