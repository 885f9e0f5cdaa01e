#pragma once

#include <ATen/core/boxing/KernelFunction.h>

#include "aten/native/OperatorTraits.h"
#include "runtime/OpenRegIdentity.h"
#include "runtime/OpenRegKernel.h"

// Decides how a call runs. Inline: at once, on the calling thread. Queued: later, in the order of the current stream.
namespace at::openreg {

using BoxedFn = c10::BoxedKernel::BoxedKernelFunction_withDispatchKeys;

// A call of the boxed kernel `boxed` with typed arguments: call() puts the arguments on a stack, runs `boxed` for the
// operator `Op`, and returns the result.
template <class Op, BoxedFn* boxed, class Schema = typename Op::schema>
struct Boxed;

template <class Op, BoxedFn* boxed, class Result, class... Args>
struct Boxed<Op, boxed, Result(Args...)> {
  static Result call(Args... args) {
    static const auto op = c10::Dispatcher::singleton().findSchemaOrThrow(Op::name, Op::overload_name);
    static const c10::KernelFunction kernel = c10::KernelFunction::makeFromBoxedFunction<boxed>();
    return kernel.call<Result, Args...>(op, identity.keys, args...);
  }
};

// LITERALINCLUDE START: INLINE OR QUEUED
// The dispatcher calls Named::call as the kernel of the operator `Op`. call() runs `route`, and keeps the operator's
// name for the inner kernel if the name is needed. The route decides itself whether its inner kernel runs at once or is
// queued.
template <class Op, auto route, class Schema = typename Op::schema>
struct Named;

template <class Op, auto route, class Result, class... Args>
struct Named<Op, route, Result(Args...)> {
  static Result call(Args... args) {
    if (C10_UNLIKELY(c10::openreg::CurrentOperator::is_needed())) {
      const c10::openreg::CurrentOperator name(full_name<Op>());
      return route(args...);
    }
    return route(args...);
  }
};

// The same for a route that only computes at once, on the calling thread. If the device does not execute inline, call()
// runs the boxed kernel `queue` in its place, which queues the call if the call can be queued.
template <class Op, auto route, BoxedFn* queue, class Schema = typename Op::schema>
struct InlineOrQueued;

template <class Op, auto route, BoxedFn* queue, class Result, class... Args>
struct InlineOrQueued<Op, route, queue, Result(Args...)> {
  static Result call(Args... args) {
    if (C10_UNLIKELY(!c10::openreg::executes_inline())) {
      return Boxed<Op, queue>::call(args...);
    }
    return Named<Op, route>::call(args...);
  }
};
// LITERALINCLUDE END: INLINE OR QUEUED

// Whether a call of `op` may be queued. The command `torch-openreg ops` shows the answer for each operator.
OPENREG_API bool is_queueable(const c10::OperatorHandle& op);

// Sets the function that is_queueable() calls. Without such a function, is_queueable() returns false. Must be called
// while the library loads.
using IsQueueable = bool (*)(const c10::OperatorHandle& op);
void set_is_queueable(IsQueueable answer);

} // namespace at::openreg
