#pragma once

#include <ATen/core/Tensor.h>

#include "../runtime/OpenRegException.h"

// Accesses of the host to pinned memory, which are no activities of the device. PyTorch's RecordFunction tells of the
// operators on CPU tensors. Some accesses are made without an operator: methods of tensors that read (numpy(),
// tolist()) call note_host_access() themselves, and PinnedSources.h finds writes of NumPy and C code.
namespace c10::openreg::sanitizer {

// Starts or stops the calls of note_host_access() for operators.
void watch_host_accesses(bool enabled);

// To be called for accesses of the host to pinned memory. Ignores other memory.
OPENREG_API void note_host_access(const char* name, const at::Tensor& tensor, bool writes);

} // namespace c10::openreg::sanitizer
