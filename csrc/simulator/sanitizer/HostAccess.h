#pragma once

#include <ATen/core/Tensor.h>

#include "runtime/OpenRegException.h"

// Accesses of the host to pinned memory, which are no activities of the device. PyTorch's RecordFunction notifies of
// the operators on CPU tensors. Some accesses are made without an operator: methods of tensors that read (numpy(),
// tolist()) call note_host_access() themselves, and PinnedSources.h finds writes of NumPy and C code.
namespace c10::openreg::sanitizer {

// Starts or stops the calls of note_host_access() for operators.
void watch_host_accesses(bool enabled);

// What the host does with a tensor.
enum class HostUse {
  Computes, // reads the bytes, and computes with them
  Moves,    // reads the bytes, and computes with some of them or with none
  Writes,
  Changes, // computes with the bytes, and writes them
  Exposes, // reads the bytes, and gives them to code that may write them and that the sanitizer does not see
};

// To be called for accesses of the host to pinned memory. Ignores other memory.
OPENREG_API void note_host_access(const char* name, const at::Tensor& tensor, HostUse use);

} // namespace c10::openreg::sanitizer
