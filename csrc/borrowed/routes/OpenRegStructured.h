#pragma once

namespace at::openreg {

// A function, not TORCH_LIBRARY_IMPL, because it must run before the fallback is registered for the operators that are
// left.
void register_structured();

} // namespace at::openreg
