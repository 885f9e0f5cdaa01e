#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <c10/util/Exception.h>
#include <torch/library.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>

#include "runtime/OpenRegIdentity.h"

// Puts a kernel in front of an operator's own kernel in the dispatcher's table: for device models, which refuse and
// round, and for dry execution, which skips. An operator that has no such kernel costs nothing more.
namespace at::openreg {

// Base class of such kernels. The kernel does not call the operator's own kernel, or passes the call on to `next_`: the
// kernel that the operator had for the dispatch key `key`.
class InFront : public c10::OperatorKernel {
 public:
  explicit InFront(const c10::OperatorHandle& op, c10::DispatchKey key = identity.key)
      : next_(op.getComputedKernelForDispatchKey(key)) {}

 protected:
  c10::SafeKernelFunction next_;
};

// Registers a new `Kernel`, a subclass of InFront, for the dispatch key `key` of `op`. The registration lasts until the
// process ends.
template <class Kernel, class... Args>
void put_in_front_for(c10::DispatchKey key, const c10::OperatorHandle& op, Args&&... args) {
  // PyTorch warns of a second kernel for the same operator. Here it is intended.
  struct Silence final : c10::WarningHandler {
    void process(const c10::Warning&) override {}
  };
  static auto* libraries = new std::deque<torch::Library>; // a registration lasts as long as its library
  Silence silence;
  const c10::WarningUtils::WarningHandlerGuard guard(&silence);
  const std::string name_space(*op.operator_name().getNamespace());
  auto& library = libraries->emplace_back(torch::Library::IMPL, name_space, key, __FILE__, __LINE__);
  library.impl(
      c10::toString(op.operator_name()).c_str(),
      torch::CppFunction::makeFromBoxedFunctor(std::make_unique<Kernel>(op, std::forward<Args>(args)...)));
}

// The same for the device's own dispatch key.
template <class Kernel, class... Args>
void put_in_front(const c10::OperatorHandle& op, Args&&... args) {
  put_in_front_for<Kernel>(identity.key, op, std::forward<Args>(args)...);
}

} // namespace at::openreg
