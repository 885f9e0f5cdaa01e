#pragma once

namespace at::openreg {

// Registers the structured kernels. This is a function, and not a TORCH_LIBRARY_IMPL block, because it must run before
// the fallback is registered for the operators that have no other kernel.
void register_structured();

} // namespace at::openreg
