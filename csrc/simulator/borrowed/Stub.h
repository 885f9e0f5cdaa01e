#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/native/DispatchStub.h>

#include <algorithm>
#include <memory>
#include <tuple>

#include "runtime/OpenRegKernel.h"
#include "simulator/borrowed/queue/QueuedWork.h"

// Inner kernels. PyTorch's operators compute through *stubs*: tables with one function for each device type. A backend
// that fills its slot inherits the rest of the operator: checks, type promotion, broadcasting, and the results.
//
// Rule: a stub belongs here if its CPU kernel takes addresses from the iterator alone. A kernel that asks the
// iterator's tensors for addresses (a reduction in two passes), or that takes tensors, would use addresses of the
// device window, which the CPU cannot read. Operators with such kernels run on aliases (KernelScope.h).
// The rule also makes such a kernel easy to queue: the iterator is all that it needs.
namespace at::openreg {

// LITERALINCLUDE START: STUB BODY
// A kernel on the operands of an iterator, run at once. Gives operands on the device their addresses in the kernel
// window, and casts a 0-dim CPU operand to the common dtype, as TensorIterator does for the CPU.
class IteratorKernel {
 public:
  IteratorKernel(const char* name, TensorIteratorBase& iterator);

 private:
  c10::openreg::Kernel kernel_;
};

// The same for a queued kernel. The copy of the iterator has CPU aliases of the device's tensors, because the tensors
// may be gone when the kernel runs.
class QueuedIterator : public QueuedWork {
 public:
  QueuedIterator(const char* name, const TensorIteratorBase& iterator);

  const char* name() const override {
    return name_;
  }
  void visit_operands(orOperandFn_t visit, void* context) const override;

 protected:
  TensorIterator iterator_;

 private:
  const char* const name_;
};

// Whether each operand can have an alias that outlives the call. If not, the kernel waits for the stream and runs at
// once.
bool can_be_queued(const TensorIteratorBase& iterator);

// Queues the kernel on the current stream of the iterator's device.
void launch(std::unique_ptr<QueuedWork> kernel, const TensorIteratorBase& iterator);

template <class... Args>
class QueuedStub final : public QueuedIterator {
 public:
  using Loop = void (*)(TensorIterator&, Args...);

  QueuedStub(Loop loop, const char* name, const TensorIteratorBase& iterator, Args... args)
      : QueuedIterator(name, iterator), loop_(loop), args_(args...) {}

 private:
  const Loop loop_;
  std::tuple<std::decay_t<Args>...> args_; // the caller's arguments may be gone when the kernel runs

  void compute(bool again) override {
    const auto run = [this](TensorIterator& iterator) {
      std::apply([&](auto&... args) { loop_(iterator, args...); }, args_);
    };
    if (again) {
      TensorIterator copy(iterator_); // a kernel may change its iterator
      run(copy);
    } else {
      run(iterator_);
    }
  }
};

// A string literal as a template argument.
template <size_t size>
struct StubName {
  char text[size];
  consteval StubName(const char (&literal)[size]) {
    std::copy_n(literal, size, text);
  }
};

// The CPU's kernel of a stub, for operands on the device.
template <auto& stub, StubName name, class Kernel = typename std::remove_reference_t<decltype(stub)>::FnPtr>
struct StubKernel;

template <auto& stub, StubName name, class Iterator, class... Args>
struct StubKernel<stub, name, void (*)(Iterator&, Args...)> {
  static void call(Iterator& iterator, Args... args) {
    if (C10_UNLIKELY(!c10::openreg::executes_inline()) && can_be_queued(iterator)) {
      launch(std::make_unique<QueuedStub<Args...>>(&loop, name.text, iterator, args...), iterator);
      return;
    }
    const IteratorKernel kernel(name.text, iterator);
    stub(kCPU, iterator, args...);
  }

 private:
  static void loop(TensorIterator& iterator, Args... args) {
    stub(kCPU, iterator, args...);
  }
};
// LITERALINCLUDE END: STUB BODY

} // namespace at::openreg
