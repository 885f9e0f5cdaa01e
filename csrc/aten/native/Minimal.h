#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/OpenRegException.h"

// The kernels of the minimal set, which a backend needs before any other operator can run. They are registered in
// ../OpenRegMinimal.cpp.
namespace at::openreg {

Tensor empty_memory_format(
    IntArrayRef size,
    std::optional<ScalarType> dtype,
    std::optional<Layout> layout,
    std::optional<Device> device,
    std::optional<bool> pin_memory,
    std::optional<MemoryFormat> memory_format);
Tensor empty_strided(
    IntArrayRef size,
    IntArrayRef stride,
    std::optional<ScalarType> dtype,
    std::optional<Layout> layout,
    std::optional<Device> device,
    std::optional<bool> pin_memory);

// Makes the output that a structured kernel asks for. If `stride` is empty, the output is contiguous in the memory
// format of `options`.
Tensor empty_output(IntArrayRef size, IntArrayRef stride, const TensorOptions& options);

// Does the same as torch.empty_strided() on the current device, without the dispatcher. Compiled graphs make their
// buffers with it.
OPENREG_API Tensor empty_compiled(IntArrayRef size, IntArrayRef stride, ScalarType dtype);

Tensor _efficientzerotensor(
    IntArrayRef size,
    std::optional<ScalarType> dtype,
    std::optional<Layout> layout,
    std::optional<Device> device,
    std::optional<bool> pin_memory);

Tensor as_strided(const Tensor& self, IntArrayRef size, IntArrayRef stride, std::optional<int64_t> storage_offset);
const Tensor& resize_(const Tensor& self, IntArrayRef size, std::optional<MemoryFormat> memory_format);
Tensor& set_(Tensor& self);
Tensor& set_source_Tensor_(Tensor& self, const Tensor& source);
Tensor& set_source_Storage_(Tensor& self, Storage source);
Tensor& set_source_Storage_storage_offset_(
    Tensor& self, Storage source, int64_t storage_offset, IntArrayRef size, IntArrayRef stride);

Tensor& copy_(Tensor& self, const Tensor& source, bool non_blocking);
Tensor _copy_from(const Tensor& self, const Tensor& destination, bool non_blocking);
Tensor _copy_from_and_resize(const Tensor& self, const Tensor& destination);
Scalar _local_scalar_dense(const Tensor& self);

bool _has_compatible_shallow_copy_type(const Tensor& self, const Tensor& from);
void record_stream(Tensor& self, Stream stream);

} // namespace at::openreg
