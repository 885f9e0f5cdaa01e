#pragma once

#include <c10/core/TensorImpl.h>

#include <bit>
#include <cstdint>

#include "aten/native/Layouts.h"

// Which allocations of a CPU kernel become its results. This is the one place that decides it: for a kernel that runs
// inline, for a queued kernel, and for everything that replays kernels or leaves them out.
//
// A CPU kernel allocates its results and its temporaries with the same allocator, so an allocation alone does not tell
// what it is. The order of a kernel's allocations does: calls of one kind (CallKey) allocate in the same order.
// Therefore the first call of a kind computes in host memory, and its results are copied to the device once. The call
// then notes which of its allocations became results, and in later calls of this kind these allocations get device
// memory. Every call checks the note. If the note is wrong, the result is copied once more, and the note is corrected.
//
// Rule: a kernel may not rely on the note. A wrong note costs a copy, and never a wrong value.
namespace at::openreg {

// A set of a kernel's allocations: bit i stands for allocation number i, counted from 0, without those of 0 bytes. The
// last bit stands for all further allocations.
using Allocations = uint32_t;
constexpr unsigned kLastAllocation = 31;

// What decides the order in which a kernel allocates: the operator, its flags, and the dtype, the number of dimensions,
// the contiguity and the order of magnitude of each operand.
class CallKey {
 public:
  explicit CallKey(const void* op) : hash_(reinterpret_cast<uintptr_t>(op)) {}

  void add(uint64_t fact) {
    hash_ = (hash_ ^ fact) * 0x9E3779B97F4A7C15; // Fibonacci hashing: the high bits depend on all facts
  }
  void add(const c10::TensorImpl& operand) {
    add(operand.key_set().raw_repr()); // the backend, and whether the tensor has components
    uint64_t fact = static_cast<uint64_t>(typeMetaToScalarType(operand.dtype()));
    if (C10_UNLIKELY(has_components(operand))) {
      add(fact | static_cast<uint64_t>(operand.layout()) << 8);
      return;
    }
    fact |= operand.is_contiguous() ? 3 << 8 : static_cast<uint64_t>(operand.is_non_overlapping_and_dense()) << 8;
    fact |= static_cast<uint64_t>(std::bit_width(static_cast<uint64_t>(operand.numel())) + 3) >> 2 << 16;
    add(fact | static_cast<uint64_t>(operand.dim()) << 32);
  }
  uint64_t hash() const {
    return hash_;
  }

 private:
  uint64_t hash_;
};

// The allocations that become results in a call of this kind. 0: not known yet, so all allocations are host memory.
Allocations results_of(CallKey call);

// Notes that `results` were the allocations that became results. Any thread may call this function at any time.
void note_results(CallKey call, Allocations results);

} // namespace at::openreg
