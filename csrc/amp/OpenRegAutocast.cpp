#include <torch/library.h>

// Mixed precision. Without the fallthrough, every operator that has no autocast kernel would fail under
// torch.autocast("openreg") with "Could not run ... 'AutocastPrivateUse1'".
namespace at::openreg {
namespace {

// LITERALINCLUDE START: AMP FALLTHROUGH
TORCH_LIBRARY_IMPL(_, AutocastPrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFallthrough());
}
// LITERALINCLUDE END: AMP FALLTHROUGH

} // namespace
} // namespace at::openreg
