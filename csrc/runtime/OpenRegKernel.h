#pragma once

#include <c10/util/ArrayRef.h>
#include <openreg_activity.h>

#include <exception>
#include <string>

#include "runtime/OpenRegStream.h"

namespace c10 {
struct TensorImpl;
}

// LITERALINCLUDE START: KERNEL RULES
// The kernel scope: every kernel enters it when the kernel begins, and leaves it when the kernel ends. A kernel that
// computes on the calling thread makes an object of the class Kernel. For a kernel that is launched
// (orLaunchDescribed), the device library enters the same scope when the stream runs the kernel.
//
// Rule: device memory is read and written only while a Kernel lives, by a launched kernel, or by the device's own
// copies and fills (orMemcpy(), orMemset() and their asynchronous forms). Profilers do not see any other
// access, and no other access is ordered with the work of other threads.
// LITERALINCLUDE END: KERNEL RULES
namespace c10::openreg {

// LITERALINCLUDE START: KERNEL SCOPE
// While an object of this class lives, the calling thread has the turn of the stream: the right to run work on it. The
// constructor waits for the work that is queued on the stream. Other threads' kernels and launches on the stream wait
// for the destructor.
class OPENREG_API Kernel {
 public:
  using VisitOperands = void (*)(void* data, orOperandFn_t visit, void* context);

  // `name` is the name of the operator or of the kernel, and must stay valid until the process ends. `operands` names
  // the bytes that the kernel reads and writes. It is called only if somebody observes kernels: when the kernel begins,
  // and again when it ends, because the results exist only then.
  Kernel(orStream_t stream, const char* name, VisitOperands operands, void* data) : what_{name, operands, data} {
    OPENREG_CHECK(orKernelBegin(&scope_, stream, &what_));
    if (C10_UNLIKELY(orIsObserved(orActivityKernel))) {
      exceptions_ = std::uncaught_exceptions();
    }
  }
  ~Kernel() {
    orKernelEnd(&scope_, orIsObserved(orActivityKernel) && std::uncaught_exceptions() > exceptions_);
  }
  Kernel(const Kernel&) = delete;
  Kernel& operator=(const Kernel&) = delete;

 private:
  orKernelScope scope_;
  orKernel what_;
  int exceptions_ = 0;
};
// LITERALINCLUDE END: KERNEL SCOPE

// Calls `visit` with the bytes of a strided tensor on the device or in pinned memory. Does nothing if the tensor has no
// elements or no storage.
OPENREG_API void visit_tensor(const TensorImpl& tensor, unsigned access, orOperandFn_t visit, void* context);

// Keeps the name of the operator that the calling thread computes, for inner kernels (DispatchStub), which do not know
// their operator. Operators make such an object only if the name is needed: while somebody observes kernels, and if the
// kernel is queued, because a queued kernel's failure names it.
class OPENREG_API CurrentOperator {
 public:
  explicit CurrentOperator(const char* name) : previous_(exchange(name)) {}
  ~CurrentOperator() {
    exchange(previous_);
  }
  CurrentOperator(const CurrentOperator&) = delete;
  CurrentOperator& operator=(const CurrentOperator&) = delete;

  static bool is_needed() {
    return orIsObserved(orActivityKernel) || !executes_inline();
  }
  // The name of the calling thread's operator, or `name` if none is kept.
  static const char* current_or(const char* name) {
    return C10_UNLIKELY(is_needed()) ? get_or(name) : name;
  }

 private:
  const char* const previous_;

  static const char* get_or(const char* name);
  static const char* exchange(const char* name);
};

// Returns the line of the program, such as "train.py:12 in step". Null, the default: the line of a launch is not
// recorded.
using LaunchSite = std::string (*)();
OPENREG_API void set_launch_site(LaunchSite site);

// The last part of the text of a failure, such as ", launched at train.py:12 in step"; empty if the line is not
// recorded. May call Python, so no lock may be held.
OPENREG_API std::string launched_at();

} // namespace c10::openreg
