#include "aten/native/Minimal.h"

#include <ATen/Context.h>
#include <ATen/Dispatch_v2.h>
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/native/TensorFactories.h>
#include <ATen/ops/as_strided_native.h>
#include <ATen/ops/set_native.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/util/safe_numerics.h>

#include "runtime/OpenRegBackendMeta.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegKernel.h"
#include "runtime/OpenRegObserver.h"
#include "runtime/OpenRegStorage.h"
#include "runtime/OpenRegWait.h"

namespace at::openreg {
namespace {

using c10::openreg::check_memory;
using c10::openreg::make_storage;
using c10::openreg::resize_storage;

c10::DeviceIndex checked_device(
    std::optional<Layout> layout, std::optional<Device> device, std::optional<bool> pin_memory) {
  TORCH_CHECK_NOT_IMPLEMENTED(
      layout.value_or(kStrided) == kStrided,
      "Expected a strided layout on the ",
      identity.device,
      " device, but got ",
      *layout,
      ".");
  TORCH_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
  const c10::DeviceIndex index = device && device->has_index() ? device->index() : c10::openreg::current_device();
  c10::openreg::check_device_index(index);
  return index;
}

// torch.use_deterministic_algorithms() promises the same bytes in every run, even in memory that nobody has written.
void fill_if_deterministic(Tensor& tensor) {
  if (C10_UNLIKELY(
          globalContext().deterministicAlgorithms() && globalContext().deterministicFillUninitializedMemory())) {
    at::native::fill_empty_deterministic_(tensor);
  }
}

// Gives the warning that PyTorch gives for the first ComplexHalf tensor of a process: an empty CPU tensor of this dtype
// causes the warning.
C10_NOINLINE void warn_of_complex_half() {
  (void)at::detail::empty_cpu({0}, kComplexHalf);
}

Tensor make_tensor(size_t bytes, caffe2::TypeMeta dtype, c10::DeviceIndex device) {
  c10::openreg::notify_new_tensor(dtype);
  if (C10_UNLIKELY(dtype == caffe2::TypeMeta::Make<c10::complex<c10::Half>>())) {
    warn_of_complex_half();
  }
  return at::detail::make_tensor<TensorImpl>(c10::Storage(make_storage(bytes, device)), identity.keys, dtype);
}

Tensor make_contiguous(
    IntArrayRef size, caffe2::TypeMeta dtype, c10::DeviceIndex device, std::optional<MemoryFormat> memory_format) {
  const size_t bytes = at::detail::computeStorageNbytesContiguous(size, dtype.itemsize());
  Tensor tensor = make_tensor(bytes, dtype, device);
  TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (size.size() != 1 || size[0] != 0) { // a new TensorImpl has the sizes [0]
    impl->generic_set_sizes_contiguous(size);
  }
  if (memory_format.value_or(MemoryFormat::Contiguous) != MemoryFormat::Contiguous) {
    impl->empty_tensor_restride(*memory_format);
  }
  fill_if_deterministic(tensor);
  return tensor;
}

Tensor make_strided(IntArrayRef size, IntArrayRef stride, caffe2::TypeMeta dtype, c10::DeviceIndex device) {
  Tensor tensor = make_tensor(at::detail::computeStorageNbytes(size, stride, dtype.itemsize()), dtype, device);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(size, stride);
  fill_if_deterministic(tensor);
  return tensor;
}

// Grows the storage if the tensor's sizes and strides reach beyond it; never shrinks it.
void ensure_storage(const Tensor& tensor) {
  TensorImpl* impl = tensor.unsafeGetTensorImpl();
  if (impl->numel() == 0) {
    return;
  }
  const size_t needed = at::detail::computeStorageNbytes(
      impl->sizes(), impl->strides(), impl->dtype().itemsize(), impl->storage_offset());
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  TORCH_CHECK(storage, "Tensor: invalid null storage");
  if (needed > storage->nbytes()) {
    resize_storage(storage, needed);
  }
}

} // namespace

// LITERALINCLUDE START: EMPTY.MEMORY_FORMAT BODY
Tensor empty_memory_format(
    IntArrayRef size,
    std::optional<ScalarType> dtype,
    std::optional<Layout> layout,
    std::optional<Device> device,
    std::optional<bool> pin_memory,
    std::optional<MemoryFormat> memory_format) {
  at::detail::check_size_nonnegative(size);
  const auto type = c10::scalarTypeToTypeMeta(dtype_or_default(dtype));
  return make_contiguous(size, type, checked_device(layout, device, pin_memory), memory_format);
}
// LITERALINCLUDE END: EMPTY.MEMORY_FORMAT BODY

Tensor empty_strided(
    IntArrayRef size,
    IntArrayRef stride,
    std::optional<ScalarType> dtype,
    std::optional<Layout> layout,
    std::optional<Device> device,
    std::optional<bool> pin_memory) {
  at::detail::check_size_nonnegative(size);
  const auto type = c10::scalarTypeToTypeMeta(dtype_or_default(dtype));
  return make_strided(size, stride, type, checked_device(layout, device, pin_memory));
}

Tensor empty_output(IntArrayRef size, IntArrayRef stride, const TensorOptions& options) {
  const c10::DeviceIndex device = options.device().index();
  return stride.empty() ? make_contiguous(size, options.dtype(), device, options.memory_format_opt())
                        : make_strided(size, stride, options.dtype(), device);
}

Tensor empty_compiled(IntArrayRef size, IntArrayRef stride, ScalarType dtype) {
  const Device device(identity.type, c10::openreg::current_device());
  return empty_output(size, stride, TensorOptions(dtype).device(device));
}

// A tensor of zeros without memory: autograd uses it for a gradient that is known to be zero. The key ZeroTensor marks
// it.
Tensor _efficientzerotensor(
    IntArrayRef size,
    std::optional<ScalarType> dtype,
    std::optional<Layout> layout,
    std::optional<Device> device,
    std::optional<bool> pin_memory) {
  c10::openreg::notify_new_tensor(c10::scalarTypeToTypeMeta(dtype_or_default(dtype)));
  at::native::ZeroTensorAllocator allocator(Device(identity.type, checked_device(layout, device, pin_memory)));
  return at::detail::empty_generic(
      size,
      &allocator,
      identity.keys | c10::DispatchKeySet(c10::DispatchKey::ZeroTensor),
      dtype_or_default(dtype),
      std::nullopt);
}

Tensor as_strided(const Tensor& self, IntArrayRef size, IntArrayRef stride, std::optional<int64_t> storage_offset) {
  return at::native::as_strided_tensorimpl(self, size, stride, storage_offset);
}

const Tensor& resize_(const Tensor& self, IntArrayRef size, std::optional<MemoryFormat> memory_format) {
  TensorImpl* impl = self.unsafeGetTensorImpl();
  const size_t old_bytes = impl->unsafe_storage().nbytes();
  if (impl->sizes() != size) {
    // The check of TensorImpl::safe_compute_numel(), here before the sizes change.
    uint64_t elements = 0;
    TORCH_CHECK(
        !c10::safe_multiplies_u64(size, &elements) && elements <= INT64_MAX, "numel: integer multiplication overflow");
    const size_t needed =
        at::detail::computeStorageNbytesContiguous(size, impl->dtype().itemsize(), impl->storage_offset());
    if (needed > old_bytes && c10::multiply_integers(size) != 0) { // before the sizes change: the allocation may fail
      resize_storage(impl->unsafe_storage().unsafeGetStorageImpl(), needed);
    }
    impl->set_sizes_contiguous(size);
  }
  if (memory_format) {
    TORCH_CHECK(*memory_format != MemoryFormat::Preserve, "Unsupported memory format", *memory_format);
    impl->empty_tensor_restride(*memory_format);
  }
  if (C10_UNLIKELY(
          globalContext().deterministicAlgorithms() && globalContext().deterministicFillUninitializedMemory())) {
    at::native::fill_resize_deterministic_(self, static_cast<int64_t>(old_bytes));
  }
  return self;
}

Tensor& set_source_Storage_storage_offset_(
    Tensor& self, Storage source, int64_t storage_offset, IntArrayRef size, IntArrayRef stride) {
  at::native::checkSetStorage(self, std::move(source), storage_offset, size, stride);
  TensorImpl* impl = self.unsafeGetTensorImpl();
  impl->set_storage_offset(storage_offset);
  if (stride.data() != nullptr) {
    impl->set_sizes_and_strides(size, stride);
  } else {
    impl->set_sizes_contiguous(size);
  }
  ensure_storage(self);
  return self;
}

Tensor& set_source_Storage_(Tensor& self, Storage source) {
  const int64_t elements = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_source_Storage_storage_offset_(self, std::move(source), 0, elements, {});
}

Tensor& set_source_Tensor_(Tensor& self, const Tensor& source) {
  if (self.is_same(source)) {
    return self;
  }
  set_source_Storage_storage_offset_(self, source.storage(), source.storage_offset(), source.sizes(), source.strides());
  c10::openreg::carry_backend_meta(*source.unsafeGetTensorImpl(), *self.unsafeGetTensorImpl());
  return self;
}

Tensor& set_(Tensor& self) {
  return set_source_Storage_storage_offset_(self, c10::Storage(make_storage(0, self.device().index())), 0, {0}, {});
}

Scalar _local_scalar_dense(const Tensor& self) {
  TORCH_CHECK(self.numel() > 0, "_local_scalar_dense: Empty tensor not supported");
  check_memory(*self.unsafeGetTensorImpl(), "aten::_local_scalar_dense");
  c10::openreg::note_synchronization();
  {
    const c10::openreg::ObservedCalls calls(c10::openreg::CallKind::Internal); // notify_wait() reports the wait
    OPENREG_CHECK(orStreamSynchronize(c10::openreg::getCurrentOpenRegStream(self.device().index()).stream()));
  }
  const auto operands = [](void* self, orOperandFn_t visit, void* context) {
    c10::openreg::visit_tensor(*static_cast<const TensorImpl*>(self), orAccessRead, visit, context);
  };
  const c10::openreg::Kernel kernel(
      c10::openreg::getCurrentOpenRegStream(self.device().index()).stream(),
      "aten::_local_scalar_dense",
      operands,
      self.unsafeGetTensorImpl());
  c10::openreg::notify_wait(c10::openreg::getCurrentOpenRegStream(self.device().index()).stream());
  const void* address = orGetKernelPointer(self.const_data_ptr());
  Scalar value;
  AT_DISPATCH_V2(
      self.scalar_type(),
      "_local_scalar_dense",
      AT_WRAP([&] { value = *static_cast<const scalar_t*>(address); }),
      AT_EXPAND(AT_ALL_TYPES_AND_COMPLEX),
      AT_EXPAND(AT_BAREBONES_UNSIGNED_TYPES),
      kComplexHalf,
      kHalf,
      kBool,
      kBFloat16,
      AT_EXPAND(AT_FLOAT8_TYPES));
  return value;
}

// PyTorch calls this operator for `t.data = u`, which copies the contents of u's TensorImpl to t's. Both must be plain
// TensorImpls: strided tensors, each of them on the device or on the CPU.
bool _has_compatible_shallow_copy_type(const Tensor& self, const Tensor& from) {
  const auto dense = [](const Tensor& tensor) {
    return tensor.layout() == kStrided && (is_device_tensor(tensor) || tensor.is_cpu());
  };
  return dense(self) && dense(from);
}

void record_stream(Tensor& self, Stream stream) {
  c10::getDeviceAllocator(identity.type)->recordStream(self.storage().data_ptr(), stream);
}

} // namespace at::openreg
