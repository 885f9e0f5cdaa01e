#pragma once

#include <c10/util/ArrayRef.h>
#include <openreg_activity.h>

#include <exception>

#include "OpenRegStream.h"

namespace c10 {
struct TensorImpl;
}

// LITERALINCLUDE START: KERNEL RULES
// The door that every kernel passes. A kernel that computes on the calling thread is one Kernel; a kernel that is launched
// (orLaunchDescribed) passes the same door of the device when its turn comes.
//
// Rule: what reads or writes device memory outside of a Kernel, a launch, or one of the device's own copies is not seen
// by profilers and sanitizers, and is not ordered with the work of other threads.
// LITERALINCLUDE END: KERNEL RULES
namespace c10::openreg {

// LITERALINCLUDE START: DOOR
// From begin() until it goes, the calling thread has the turn of the stream: it waits for what is queued there, and other
// threads' kernels and launches on that stream wait for it.
class OPENREG_API Kernel {
 public:
  using Operands = void (*)(void* data, orOperandFn_t visit, void* context);

  Kernel() = default;
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;
  ~Kernel() {
    if (begun_) {
      orKernelEnd(&scope_, orIsObserved(orActivityKernel) && std::uncaught_exceptions() > exceptions_);
    }
  }

  // `name`: the operator's, or the kernel's own; it stays. `operands` tells of the bytes that the kernel reads and writes,
  // and is asked only if somebody listens: at the begin, and at the end about the results.
  void begin(orStream_t stream, const char* name, Operands operands, void* data) {
    what_ = {name, operands, data};
    OPENREG_CHECK(orKernelBegin(&scope_, stream, &what_));
    begun_ = true;
    if (C10_UNLIKELY(orIsObserved(orActivityKernel))) {
      exceptions_ = std::uncaught_exceptions();
    }
  }

 private:
  orKernelScope scope_;
  orKernel what_;
  int exceptions_ = 0;
  bool begun_ = false;
};
// LITERALINCLUDE END: DOOR

// Tells `visit` of a strided tensor on the device or in pinned memory.
OPENREG_API void visit_tensor(const TensorImpl& tensor, unsigned access, orOperandFn_t visit, void* context);

// The name of the operator that computes through inner kernels which do not know it (DispatchStub). Kept only while somebody
// listens.
class OPENREG_API OperatorName {
 public:
  explicit OperatorName(const char* (*name)()) {
    if (C10_UNLIKELY(orIsObserved(orActivityKernel))) {
      previous_ = exchange(name());
      active_ = true;
    }
  }
  ~OperatorName() {
    if (C10_UNLIKELY(active_)) {
      exchange(previous_);
    }
  }
  OperatorName(const OperatorName&) = delete;
  OperatorName& operator=(const OperatorName&) = delete;

  // Null: none.
  static const char* current() {
    return C10_UNLIKELY(orIsObserved(orActivityKernel)) ? get() : nullptr;
  }

 private:
  const char* previous_ = nullptr;
  bool active_ = false;

  static const char* get();
  static const char* exchange(const char* name);
};

} // namespace c10::openreg
