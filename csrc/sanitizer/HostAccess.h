#pragma once

// Accesses of the host to pinned memory, which are no activities of the device. PyTorch's RecordFunction tells of the
// operators on CPU tensors. Other accesses are not operators: the methods of tensors that read (numpy(), tolist()) call
// note_host_access() themselves, and PinnedSources.h finds writes.
namespace c10::openreg::sanitizer {

// Starts to report the accesses to note_host_access(), or stops.
void watch_host_accesses(bool enabled);

} // namespace c10::openreg::sanitizer
