#include <ATen/Operators.h>
#include <ATen/autocast_mode.h>
#include <ATen/native/NonSymbolicBC.h>
#include <torch/library.h>

#include "runtime/OpenRegFunctions.h"
#include "runtime/OpenRegTorchVersion.h"

// Mixed precision: the operators that torch.autocast("openreg") runs in lower precision, in float32, or in the widest
// dtype of their arguments. The lists are PyTorch's own for all accelerators, so a model casts in the same places as on
// CUDA.
namespace at::openreg {
namespace {

// LITERALINCLUDE START: AMP FALLTHROUGH
// An operator that is on no list runs in the dtypes of its arguments. Without this line it would not run at all: "Could
// not run ... with arguments from the 'AutocastPrivateUse1' backend".
void register_fallthrough(torch::Library& m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}
// LITERALINCLUDE END: AMP FALLTHROUGH

Tensor binary_cross_entropy_banned(const Tensor&, const Tensor&, const std::optional<Tensor>&, int64_t) {
  TORCH_CHECK(
      false,
      "torch.nn.functional.binary_cross_entropy and torch.nn.BCELoss are unsafe to autocast.\n"
      "Many models use a sigmoid layer right before the binary cross entropy layer.\n"
      "In this case, combine the two layers using torch.nn.functional.binary_cross_entropy_with_logits\n"
      "or torch.nn.BCEWithLogitsLoss.  binary_cross_entropy_with_logits and BCEWithLogits are\n"
      "safe to autocast.");
}

// LITERALINCLUDE START: AMP LISTS
void register_lists(torch::Library& m) {
#define LOWER(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, lower_precision_fp)
  AT_FORALL_LOWER_PRECISION_FP(LOWER)
#undef LOWER
#define FLOAT32(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32)
  AT_FORALL_FP32(FLOAT32)
#if OPENREG_TORCH_AT_LEAST(2, 14)
  FLOAT32(linalg_matrix_sqrth) // PyTorch has it on the list of CUDA only
#endif
#undef FLOAT32
#define FLOAT32_UNLESS_GIVEN(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, fp32_set_opt_dtype)
  AT_FORALL_FP32_SET_OPT_DTYPE(FLOAT32_UNLESS_GIVEN)
#undef FLOAT32_UNLESS_GIVEN
  AT_FORALL_DIFFERENT_REDISPATCH_SIGNATURE(KERNEL_DIFFERENT_REDISPATCH_SIGNATURE_PRIVATEUSEONE)
#define WIDEST(...) KERNEL_PRIVATEUSEONE(__VA_ARGS__, promote)
  AT_FORALL_PROMOTE(WIDEST)
#undef WIDEST

  m.impl("binary_cross_entropy", binary_cross_entropy_banned);
}
// LITERALINCLUDE END: AMP LISTS

// These kernels are registered when the device starts, and not by TORCH_LIBRARY_IMPL at `import torch`. The
// registration takes 3 ms, and only device tensors need it.
const bool at_start = [] {
  c10::openreg::on_start([] {
    using torch::Library;
    static Library all(Library::IMPL, "_", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
    register_fallthrough(all);
    static Library aten(Library::IMPL, "aten", c10::DispatchKey::AutocastPrivateUse1, __FILE__, __LINE__);
    register_lists(aten);
  });
  return true;
}();

} // namespace
} // namespace at::openreg
