#pragma once

// Accesses of the host to pinned memory, which are no activities of the device. PyTorch's RecordFunction tells of the
// operators on CPU tensors. Some accesses are made without an operator: methods of tensors that read (numpy(),
// tolist()) call note_host_access() themselves, and PinnedSources.h finds writes of NumPy and C code.
namespace c10::openreg::sanitizer {

// Starts or stops the calls of note_host_access() for operators.
void watch_host_accesses(bool enabled);

} // namespace c10::openreg::sanitizer
