#include <ATen/ops/native_dropout_native.h>
#include <torch/csrc/jit/frontend/function_schema_parser.h>
#include <torch/library.h>

#include <deque>

#include "aten/native/Minimal.h"
#include "aten/native/NondeterminismChecks.h"
#include "runtime/OpenRegFunctions.h"
#include "simulator/borrowed/Fallback.h"
#include "simulator/borrowed/routes/OpenRegCpuKernels.h"
#include "simulator/borrowed/routes/OpenRegStructured.h"
#include "simulator/borrowed/routes/Route.h"
#include "simulator/borrowed/routes/Wider.h"

// Registers the operators that have a faster route, and then the fallback: the boxed route, with the same results, for
// operators for which the device has no other kernel.
namespace at::openreg {
namespace {

#include <OperatorTraits.inc>

// LITERALINCLUDE START: FALLBACK GLOBAL
TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}
// LITERALINCLUDE END: FALLBACK GLOBAL

// LITERALINCLUDE START: FALLBACK PER OPERATOR
// Registers a fallback for those of the operators `names` that have no kernel for `key` yet. An operator with a
// composite kernel needs this, because PyTorch prefers the composite kernel to the global fallback. An operator whose
// fallback is not the global one needs this too.
template <c10::BoxedKernel::BoxedKernelFunction_withDispatchKeys* kernel = &fallback, class Names>
void fallback_for(torch::Library& m, c10::DispatchKey key, const Names& names) {
  for (const auto& name : names) {
    const auto op = c10::Dispatcher::singleton().findOp(torch::jit::parseName(name));
    if (op && !op->hasKernelForDispatchKey(key)) {
      m.impl(
          c10::toString(op->operator_name()).c_str(),
          routed(torch::CppFunction::makeFromBoxedFunction<kernel>(), "registered fallback"));
    }
  }
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  register_cpu_kernels(m);
  register_structured(m);
  for (const WiderOperators& each : wider_operators()) {
    for (const char* op : each.names) {
      auto kernel = std::make_unique<WiderKernel>(each.dtypes, each.precondition);
      m.impl(op, routed(torch::CppFunction::makeFromBoxedFunctor(std::move(kernel)), "registered fallback"));
    }
  }
  fallback_for<&check_and_run<&fallback>>(m, c10::DispatchKey::PrivateUse1, nondeterministic_operators());
  fallback_for(m, c10::DispatchKey::PrivateUse1, kOvershadowedCPU);
  // The composite kernel of `mode` accepts only the devices that it names (CPU, CUDA, XPU). The composite kernel of
  // `conj_physical_` calls a stub that the device does not fill.
  for (const char* name : {"mode.values", "conj_physical_"}) {
    m.impl(name, routed(torch::CppFunction::makeFromBoxedFunction<&fallback>(), "registered fallback"));
  }
}
// LITERALINCLUDE END: FALLBACK PER OPERATOR

// A tensor's layout is part of its dispatch key. Each layout has a fallback of its own, and composite kernels that
// PyTorch prefers to the fallback.
template <size_t N>
void register_layout(c10::DispatchKey key, const char* const (&names)[N]) {
  static auto* libraries = new std::deque<torch::Library>; // a registration lasts as long as its library
  torch::Library& aten = libraries->emplace_back(torch::Library::IMPL, "aten", key, __FILE__, __LINE__);
  aten.impl("copy_", routed(torch::CppFunction(&copy_), "override")); // the copy kernel is the CPU's copy_
  if (key == c10::DispatchKey::QuantizedPrivateUse1) {                // copy.deepcopy and pickle need it
    aten.impl(
        "set_.source_Storage_storage_offset",
        routed(torch::CppFunction(&set_source_Storage_storage_offset_), "native"));
  }
  fallback_for(aten, key, names);
  torch::Library& all = libraries->emplace_back(torch::Library::IMPL, "_", key, __FILE__, __LINE__);
  all.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

// Registered when the device starts, because no tensor of these layouts exists before. TORCH_LIBRARY_IMPL would
// register at `import torch`, which would take 3 ms longer for each fallback, because PyTorch looks at every operator
// again.
const bool at_start = [] {
  c10::openreg::on_start([] {
    register_layout(c10::DispatchKey::SparsePrivateUse1, kOvershadowedSparseCPU);
    register_layout(c10::DispatchKey::SparseCsrPrivateUse1, kOvershadowedSparseCsrCPU);
    register_layout(c10::DispatchKey::QuantizedPrivateUse1, kOvershadowedQuantizedCPU);
    register_layout(c10::DispatchKey::NestedTensorPrivateUse1, kOvershadowedNestedTensorCPU);
  });
  return true;
}();

// This kernel calls the device's native_dropout, which draws the random numbers from the device's generator. The
// fallback would draw them from the CPU's generator.
TORCH_LIBRARY_IMPL(aten, NestedTensorPrivateUse1, m) {
  m.impl("native_dropout", routed(torch::CppFunction(&at::native::native_dropout_nested), "composite explicit"));
}

} // namespace
} // namespace at::openreg
