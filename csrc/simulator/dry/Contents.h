#pragma once

#include <ATen/core/Tensor.h>
#include <openreg_dry.h>

#include <atomic>

// What the elements of tensors contain in dry execution.
namespace at::openreg {

// The largest number of bytes of a small tensor. 0: dry execution has not started.
inline std::atomic<size_t> limit_of_small_tensors{0};
inline size_t dry_limit() {
  return limit_of_small_tensors.load(std::memory_order_relaxed);
}

inline bool is_small(const Tensor& tensor) {
  return tensor.nbytes() <= dry_limit();
}

// Whether the tensor is one strided block of device memory, so that its contents are known here.
bool has_contents(const Tensor& tensor);

orContents contents_of(const Tensor& tensor);

// Notes that all elements of `tensor` were written. Between its elements, other elements keep what they contain.
void set_contents(const Tensor& tensor, orContents contents);

// Writes zeros to all elements. The calling thread must have the turn of the stream.
void set_to_zero(const Tensor& tensor);

// ---- Tensors of the host

// Whether the tensor lies in a large CPU storage whose initialisation was skipped, so that it is zeros.
bool is_absent_on_host(const Tensor& tensor);

// Gives the pages of a large CPU tensor back, so that it is zeros and needs no memory until it is written. Returns false
// and does nothing if the tensor is small, does not fill its storage, or lies in other memory than the CPU allocator's.
bool make_absent_on_host(const Tensor& tensor);

// Notes that all elements of the tensor were really written.
void set_present_on_host(const Tensor& tensor);

} // namespace at::openreg
