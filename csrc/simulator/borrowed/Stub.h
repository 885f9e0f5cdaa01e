#pragma once

#include <ATen/TensorIterator.h>
#include <ATen/native/DispatchStub.h>

#include <algorithm>

#include "runtime/OpenRegKernel.h"

// Inner kernels. PyTorch's operators compute through *stubs*: tables with one function for each device type. A backend
// that fills its slot inherits the rest of the operator: checks, type promotion, broadcasting, and the results.
//
// Rule: a stub belongs here if its CPU kernel takes addresses from the iterator alone. A kernel that asks the
// iterator's tensors for addresses (a reduction in two passes), or that takes tensors, would use addresses of the
// device window, which the CPU cannot read. Operators with such kernels run on aliases (KernelScope.h).
// docs/stub-operators.md lists all stubs by this rule.
namespace at::openreg {

// LITERALINCLUDE START: STUB BODY
// A kernel on the operands of an iterator. Gives operands on the device their addresses in the kernel window, and casts
// a 0-dim CPU operand to the common dtype, as TensorIterator does for the CPU.
class IteratorKernel {
 public:
  IteratorKernel(const char* name, TensorIteratorBase& iterator);

 private:
  c10::openreg::Kernel kernel_;
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
    const IteratorKernel kernel(name.text, iterator);
    stub(kCPU, iterator, args...);
  }
};
// LITERALINCLUDE END: STUB BODY

} // namespace at::openreg
