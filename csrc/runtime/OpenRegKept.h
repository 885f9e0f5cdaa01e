#pragma once

namespace c10::openreg {

// True while the calling thread makes a handle that this library keeps until the process ends. Whoever looks for handles that
// a program has forgotten leaves it out.
inline thread_local bool makes_kept_handle = false;

} // namespace c10::openreg
