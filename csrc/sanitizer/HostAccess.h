#pragma once

// What the host does with pinned memory, which passes no kernel of the device: operators of CPU tensors, as PyTorch's
// RecordFunction tells of them. What reads the memory without an operator (NumPy, C code) is not seen.
namespace c10::openreg::sanitizer {

void watch_host_accesses(bool enabled);

} // namespace c10::openreg::sanitizer
