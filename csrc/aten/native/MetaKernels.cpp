#include "MetaKernels.h"

#include <ATen/MetaFunctions.h>
#include <ATen/Operators.h>

#include <unordered_map>

namespace at::openreg {
namespace {

#include <OperatorPolicy.inc>

// at::meta has its functions with plain integers where the operator's schema has symbolic ones.
template <class T>
struct Plain {
  using type = T;
};
template <>
struct Plain<c10::SymInt> {
  using type = int64_t;
};
template <>
struct Plain<c10::SymIntArrayRef> {
  using type = IntArrayRef;
};
template <>
struct Plain<OptionalSymIntArrayRef> {
  using type = OptionalIntArrayRef;
};
template <>
struct Plain<std::optional<c10::SymInt>> {
  using type = std::optional<int64_t>;
};
template <class Result, class... Args>
struct Plain<Result(Args...)> {
  using type = Result(typename Plain<Args>::type...);
};

template <class Op>
using PlainSchema = typename Plain<typename Op::schema>::type;

using Kernels = std::unordered_map<c10::OperatorName, c10::KernelFunction>;

template <class Function> // one for each type, not for each operator: it takes the compiler long
void add(Kernels& kernels, const char* name, const char* overload, Function* kernel) {
  kernels.emplace(c10::OperatorName(name, overload), c10::KernelFunction::makeFromUnboxedRuntimeFunction(kernel));
}

Kernels all_kernels() {
  Kernels kernels;
#define META_KERNEL(OP, FUNCTION)  \
  add(kernels,                     \
      at::_ops::OP::name,          \
      at::_ops::OP::overload_name, \
      static_cast<PlainSchema<at::_ops::OP>*>(&at::meta::FUNCTION));
  OPENREG_META_KERNELS(META_KERNEL)
#undef META_KERNEL
  return kernels;
}

} // namespace

const c10::KernelFunction* meta_kernel(const c10::OperatorName& name) {
  static const auto* kernels = new Kernels(all_kernels()); // made when the first kernel is queued
  const auto found = kernels->find(name);
  return found == kernels->end() ? nullptr : &found->second;
}

} // namespace at::openreg
